"""Receive: pop ready refs, check their states, and lease the messages that may be handed out.

Messages past their ttl are ended in the same turn. The LEASE frame is appended before the delivery
is returned, and the host writes it before it answers.
"""

from __future__ import annotations

from delaylog.broker.engine.deliver.deliverable import records_of
from delaylog.broker.engine.deliver.few_leases import lease_few
from delaylog.broker.engine.deliver.selecting import ReceiveRequest, Selection
from delaylog.broker.engine.model import Delivery, Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.layout import (
    Int64Array,
    RowArray,
    StateArray,
)


def receive(
    state: EngineState,
    topic: Topic,
    group: Group,
    asked: ReceiveRequest,
    *,
    lease_ms: int,
    claim: int = 0,
) -> Delivery | None:
    """Messages for a request under a new lease, or None.

    If several consumers share the request, each has its own lease. Messages for a claim come
    without records, which are read with the claim's rows later. Raises HeldError while the broker
    is held.
    """
    state.holding.check()
    now_ms = asked.now_ms
    topic.used_ms = group.used_ms = now_ms
    group.delivered_rate.look(now_ms, group.counts.delivered)
    room = state.limits.leased_max - state.leases.leased(topic.number, group.number)
    count_max = min(asked.count_max, room)
    if count_max <= 0:
        state.marks.lease_full.add((topic.number, group.number))
        if group.has_ready:
            key = topic.namespace, topic.name, group.name
            state.timeline.last(key, "leased_max", now_ms)
        return None
    if topic.paused:
        return None
    bucket = group.bucket
    if bucket is not None:
        count_max = bucket.take(now_ms, count_max)
        if count_max == 0:
            ready_ms = bucket.ready_at_ms(now_ms)
            state.marks.rate_limited[topic.number, group.number] = ready_ms
            if group.has_ready:
                key = topic.namespace, topic.name, group.name
                state.timeline.group(key, "rate_limit", now_ms, ready_ms)
            return None
    delivery: Delivery | None = None
    if asked.chosen is None and asked.only is None and not claim:
        delivery = lease_few(state, topic, group, asked, count_max, lease_ms)
    if delivery is None:
        selection = Selection(state, topic, group, asked, count_max, claim)
        if asked.chosen is None:
            selection.run()
        else:
            selection.choose(asked.chosen)
        delivery = selection.lease(lease_ms)
    if bucket is not None:
        bucket.give_back(count_max - (0 if delivery is None else delivery.count))
    return delivery


def peek(
    state: EngineState,
    topic: Topic,
    group: Group,
    asked: ReceiveRequest,
) -> tuple[Int64Array, RowArray, StateArray, bytes]:
    """Read ready messages without leasing them: their refs go back to the front."""
    selection = Selection(state, topic, group, asked, asked.count_max)
    if asked.chosen is None:
        selection.look_through()
    else:
        selection.look_for(asked.chosen)
    part = selection.joined()
    part = part.first(selection.fitting(part.rows))
    return part.refs, part.rows, part.entries, records_of(state, part.refs, part.rows)
