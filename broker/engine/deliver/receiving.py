"""Receive: take ready refs, look at their state once more, lease what is still good.

What turns out to be expired by ttl is ended here, in the same turn. The LEASE frame is appended
before the delivery is returned; the edge writes it before it answers.
"""

from __future__ import annotations

from delaylog.broker.engine.deliver.deliverable import records_of
from delaylog.broker.engine.deliver.taking import Asked, Taking
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
    asked: Asked,
    *,
    lease_ms: int,
    claim: int = 0,
) -> Delivery | None:
    """Messages that were asked for, or None.

    They are under a new lease, or under one for each of several consumers. What is taken for a
    claim comes without records: they are read later, by whoever reads its rows.
    """
    now_ms = asked.now_ms
    topic.used_ms = group.used_ms = now_ms
    group.delivered_rate.look(now_ms, group.counts.delivered)
    room = state.limits.leased_max - state.leases.leased(topic.number, group.number)
    count_max = min(asked.count_max, room)
    if count_max <= 0:
        state.full.add((topic.number, group.number))
        return None
    if topic.paused:
        return None
    bucket = group.bucket
    if bucket is not None:
        count_max = bucket.take(now_ms, count_max)
        if count_max == 0:
            state.paced[topic.number, group.number] = bucket.ready_at_ms(now_ms)
            return None
    taking = Taking(state, topic, group, asked, count_max, claim)
    if asked.chosen is None:
        taking.run()
    else:
        taking.choose(asked.chosen)
    delivery = taking.lease(lease_ms)
    if bucket is not None:
        bucket.give_back(count_max - (0 if delivery is None else delivery.count))
    return delivery


def peek(
    state: EngineState,
    topic: Topic,
    group: Group,
    asked: Asked,
) -> tuple[Int64Array, RowArray, StateArray, bytes]:
    """Look at what is ready without leasing: the refs go straight back to the front."""
    taking = Taking(state, topic, group, asked, asked.count_max)
    if asked.chosen is None:
        taking.look_through()
    else:
        taking.look_for(asked.chosen)
    part = taking.joined()
    part = part.first(taking.fitting(part.rows))
    return part.refs, part.rows, part.entries, records_of(state, part.refs, part.rows)
