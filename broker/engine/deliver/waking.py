"""What comes back to a group's ready queue, and who is to be told of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delaylog.broker.engine.deliver.leases import Keyed
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.ready.ready_lanes import Order
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.engine.topics.token_bucket import TokenBucket
from delaylog.storage.columns.questions import every
from delaylog.storage.layout import Int64Array, RowArray


def known_rows(state: EngineState, refs: Int64Array) -> tuple[Int64Array, RowArray]:
    """Those refs whose hours are still there, with their rows."""
    known = state.hours.known(refs)
    refs = refs if every(known) else refs[known]
    return refs, state.hours.rows(refs)


def put_back(
    state: EngineState, topic: Topic, group: Group, refs: Int64Array, *, failed: bool
) -> None:
    """Messages are ready again at once, before the frame that frees them is committed.

    That is safe where rows of a SEND are not: they were committed and due before, so none is early.
    A frame that hands one out stands behind the frame that freed it, so it is never committed
    alone. If this node loses both, the next leader still knows the lease that was settled or
    expired here, and hands the message out again after it: a repeat, as when any LEASE frame that
    was answered is lost, and never a loss.
    """
    refs, rows = known_rows(state, refs)
    if len(refs):
        group.ready.put_back(refs, rows, failed=failed)
        state.woken.add((topic.number, group.number))


def free_keys(
    state: EngineState,
    topic: Topic,
    group: Group,
    keyed: Sequence[Keyed],
    origins: Int64Array,
    *,
    living: bool = False,
) -> None:
    """Messages ended (or, living on, gave up their keys): what waited for those may go out.

    `keyed` are those of them that were under lease and have keys.
    """
    gate = group.made_gate
    if gate is None:
        return
    for each in keyed:
        gate.release(each.keys)
    if gate.remembers_origins:
        ended = origins.tolist()
        gate.give_up(ended)
        for only, heirs in () if living else gate.end(ended):
            refs, rows = known_rows(state, np.array(heirs, np.int64))
            group.ready.unpark(only, refs, rows)
            state.woken.add((topic.number, group.number))
    if gate.take_watched() or gate.freed:
        state.woken.add((topic.number, group.number))


def wake_paced(state: EngineState, now_ms: int) -> None:
    """Wake those of whom a rate limit lets something through now."""
    for place, ready_ms in list(state.paced.items()):
        if ready_ms <= now_ms:
            del state.paced[place]
            state.woken.add(place)


def follow_settings(topic: Topic) -> None:
    """Order and pace of every group as the topic has them now."""
    settings = topic.settings
    order = None
    if settings.order == "priority":
        order = Order(by_priority=True, aging_ms=settings.aging_ms)
    elif topic.prioritised:
        order = Order(by_priority=False)
    limit = settings.rate_limit
    for group in topic.groups.values():
        group.set_order(order)
        if limit is None:
            group.bucket = None
        elif group.pace != limit:
            group.bucket = TokenBucket(limit.per_second, limit.burst)
        group.pace = limit
