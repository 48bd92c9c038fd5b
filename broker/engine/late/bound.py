"""What bounds a group's deliveries now."""

from __future__ import annotations

from delaylog.broker.engine.late.demand import IDS
from delaylog.broker.engine.late.timeline import Timeline
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group


def bounded_by(state: EngineState, topic: Topic, group: Group, now_ms: int) -> str | None:
    """The cause that keeps ready messages of a group waiting now; None = none is ready,
    or a consumer is about to get them.

    One of held, paused, key, rate_limit, leased_max, push_target, filtered_out, no_consumers and
    slow_consumers. A follower has no ready queues, so there it is None.
    """
    place = topic.number, group.number
    timeline: Timeline = state.timeline
    leased = state.leases.leased(*place)
    if group.counts.living <= leased or not group.ready_count:
        return None
    if state.holding.now is not None:
        return "held"
    if topic.paused:
        return "paused"
    if leased >= state.limits.leased_max:
        return "leased_max"
    if place in state.marks.rate_limited:
        return "rate_limit"
    key = topic.namespace, topic.name, group.name
    health = state.targets.healths.get(place)
    if health is not None:
        # Short throttles are not stored.
        if health.blocks or timeline.holds(key, "push_target", now_ms):
            return "push_target"
    asked = timeline.asking(key)
    wanted = timeline.asked_for(key, now_ms)
    left_out = bool(wanted) and wanted <= {IDS} | group.ready.filters_left_out()
    gate = group.made_gate
    parked = 0 if gate is None else gate.parking.parked
    # Messages wait for the end of one with the same key or id, and a consumer asks, or there are no
    # others that one who asked would get.
    if parked and (asked or left_out or not group.has_ready):
        return "filtered_out" if left_out and 2 * parked < group.ready_count else "key"
    if left_out:
        return "filtered_out"
    if timeline.asked_for_all(key):
        return None
    return "slow_consumers" if leased else "no_consumers"
