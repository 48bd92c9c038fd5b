"""What bounds a group's deliveries now."""

from __future__ import annotations

from delaylog.broker.engine.late.demand import IDS
from delaylog.broker.engine.late.timeline import Timeline
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group


def bounded_by(state: EngineState, topic: Topic, group: Group, now_ms: int) -> str | None:
    """The cause that keeps ready messages of a group waiting now; None = none is ready.

    One of paused, key, rate_limit, leased_max, push_target, filtered_out, no_consumers and
    slow_consumers. A follower has no ready queues, so there it is None.
    """
    place = topic.number, group.number
    timeline: Timeline = state.timeline
    leased = state.leases.leased(*place)
    if group.counts.living <= leased or not group.ready_count:
        return None
    if topic.paused:
        return "paused"
    if leased >= state.limits.leased_max:
        return "leased_max"
    if place in state.marks.rate_limited:
        return "rate_limit"
    health = state.targets.healths.get(place)
    if health is not None and health.blocks:
        return "push_target"
    # Messages wait for the end of one with the same key or id, and either a consumer asks, or there
    # are no others that one who asked would get. With others that the consumers who ask do not
    # take, they asked for other tags or ids, and nobody asks for these messages.
    key = topic.namespace, topic.name, group.name
    asked = timeline.asking(key)
    gate = group.made_gate
    parks = gate is not None and gate.parking.parks
    if parks and (asked or not group.has_ready):
        return "key"
    wanted = timeline.asked_for(key, now_ms)
    if wanted and not parks and wanted <= {IDS} | group.ready.filters_left_out():
        return "filtered_out"
    return "slow_consumers" if leased else "no_consumers"
