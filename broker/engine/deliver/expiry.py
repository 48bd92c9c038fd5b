"""Expiry: a message that is not under lease ends at the instant at which its ttl is over.

`Engine.run_due` calls `end_due` on time, whether or not anybody receives. A decision about a
message at hand does not wait for that: a look-up shows it as ended (`find_origins`), and
`end_expired` writes that before the decision is made, so that a later leader, whose clock may be
behind, sees the same. Under lease a ttl ends nothing: the consumer may still ack the message, and
one that returns past its ttl becomes a dead letter (settling.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.apply.lease_frames import apply_settle
from delaylog.broker.engine.lookup.find_messages import find_origins, same_ids
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.model import Part, Topic, blank_entries
from delaylog.broker.engine.ready.expiries import SHARED
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns import distinct, every, gather, grouped, some, take_rows
from delaylog.storage.layout import (
    STATE_ENDED_FIRST,
    STATE_NONE,
    Cause,
    FrameKind,
    Int64Array,
    MessageState,
    RowArray,
)
from delaylog.storage.log.payloads import SettleDecision
from delaylog.storage.messages.batch import Block

SLICE_ROWS: Final = 2_048
"""Expired messages that are ended at once: about 2 ms."""


def end_due(state: EngineState, now_ms: int) -> None:
    """End one slice of the messages that have expired, and tidy the queue of those to come."""
    due = state.expiries.next()
    if due is not None and due[0] <= now_ms:
        _end_refs(state, state.expiries.take(due[1], now_ms, SLICE_ROWS), now_ms)
    state.expiries.sweep(lambda refs: _living(state, refs))


def make_room(state: EngineState, topic: Topic, now_ms: int, enough: Callable[[], bool]) -> bool:
    """End expired messages of a topic until there is enough room for others; False if there is not.

    The cost is that of the room: as many messages end as it takes, not all that have expired.
    """
    # What became ready before the topic had a quota is in the shared queue.
    for owner in dict.fromkeys((topic.expiry_owner, SHARED)):
        while not enough() and state.expiries.is_due(owner, now_ms):
            _end_refs(state, state.expiries.take(owner, now_ms, SLICE_ROWS), now_ms)
    return enough()


def end_expired(state: EngineState, topic: Topic, found: FoundMessages, now_ms: int) -> None:
    """End those of the messages of a look-up that are shown as expired and have not ended yet."""
    shown = (found.entries["cause"] == Cause.TTL) & (found.states >= STATE_ENDED_FIRST)
    if not some(shown):
        return
    _, first = np.unique(found.refs, return_index=True)
    at = first[shown[first]]
    entries = state.hours.get_states(found.refs[at], found.group.number)
    late = entries["state"] == STATE_NONE
    if some(late):
        at = at[late]
        part = Part(found.refs[at], take_rows(found.rows, at), take_rows(entries, late))
        _end(state, topic, found.group, part, now_ms)


def find_living(
    state: EngineState,
    topic: Topic,
    origins: Int64Array,
    ids: Block,
    sizes: Int64Array,
    *,
    group: Group,
    now_ms: int,
) -> tuple[Int64Array, FoundMessages]:
    """(indexes of client-chosen ids that living messages have, those messages).

    `origins` = the entries of the id index for these ids, which are concatenated in `ids`.
    """
    at = np.flatnonzero(origins)
    found = find_origins(state, origins[at], topic, now_ms, group)
    end_expired(state, topic, found, now_ms)
    living = np.flatnonzero(found.known & (found.states < STATE_ENDED_FIRST))
    at, found = at[living], found.take(living)
    if len(at) == 0:
        return at, found
    starts = np.cumsum(sizes) - sizes
    wanted = gather(ids, starts[at], sizes[at])
    same = same_ids(state, found.refs, found.rows, wanted, sizes[at])
    return at[same], found.take(np.flatnonzero(same))


def _end_refs(state: EngineState, refs: Int64Array, now_ms: int) -> None:
    """End messages that are due to, in each group where they wait for a receive."""
    refs, rows = _existing(state, distinct(refs))
    over = rows["expires_at"] <= now_ms
    if not every(over):
        refs, rows = refs[over], take_rows(rows, over)
    for number, mine in grouped(rows["topic"].astype(np.int64)):
        topic = state.by_number.get(number)
        if topic is None:
            continue
        for group in topic.groups.values():
            part = Part(
                refs[mine], take_rows(rows, mine), state.hours.get_states(refs[mine], group.number)
            )
            free = group.free(part.rows, part.entries)
            if some(free):
                _end(state, topic, group, part if every(free) else part.take(free), now_ms)


def _existing(state: EngineState, refs: Int64Array) -> tuple[Int64Array, RowArray]:
    """Those of the refs that still name their rows, and the rows."""
    known = state.hours.known(refs)
    refs = refs if every(known) else refs[known]
    rows = state.hours.rows(refs)
    same = state.hours.check_tags(refs, rows)
    return (refs, rows) if every(same) else (refs[same], take_rows(rows, same))


def _living(state: EngineState, refs: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Those of the refs whose messages wait for a receive in some group, and when they expire."""
    refs, rows = _existing(state, refs)
    living = np.zeros(len(refs), np.bool_)
    for number, mine in grouped(rows["topic"].astype(np.int64)):
        topic = state.by_number.get(number)
        for group in () if topic is None else topic.groups.values():
            states = state.hours.get_states(refs[mine], group.number)["state"]
            living[mine] |= states == STATE_NONE
    return refs[living], rows["expires_at"][living].astype(np.int64)


def _end(state: EngineState, topic: Topic, group: Group, part: Part, now_ms: int) -> None:
    """End messages whose refs are in the ready queues of a group."""
    end_by_ttl(state, topic, group, part, now_ms)
    group.ready.left(state.count_released(part.rows))
    group.ready.drop_front(lambda refs: _ended(state, group, refs))


def _ended(state: EngineState, group: Group, refs: Int64Array) -> npt.NDArray[np.bool_]:
    """Which refs name messages that have ended in a group."""
    known = np.array(state.hours.known(refs), np.bool_)
    states = state.hours.get_states(refs[known], group.number)["state"]
    known[known] = states < STATE_ENDED_FIRST
    return ~known


def end_by_ttl(state: EngineState, topic: Topic, group: Group, late: Part, now_ms: int) -> None:
    """End messages past their ttl: dead after a delivery, expired without one."""
    refs, entries = late.refs, late.entries
    ended = blank_entries(len(refs))
    ended["attempts"] = entries["attempts"]
    ended["state"] = topic.expired_states(entries)
    ended["cause"] = Cause.TTL
    ended["time"] = now_ms
    settings = topic.settings
    dead = some(ended["state"] == int(MessageState.DEAD))
    decision = SettleDecision(
        topic.number,
        group.number,
        refs,
        ended,
        None,
        late.rows["origin"].astype(np.int64),
        now_ms + (settings.dead_keep_ms if dead else settings.ended_keep_ms),
    )
    _, end = state.append(FrameKind.SETTLE, decision.encode(), now_ms)
    apply_settle(state, decision, end, now_ms)
    state.activity(topic).found_ended += len(refs)
