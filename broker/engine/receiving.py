"""Receive: take ready refs, look at their state once more, lease what is still good.

What turns out to be expired by ttl is ended here, in the same turn. The LEASE frame is appended
before the delivery is returned; the edge writes it before it answers.
"""

from __future__ import annotations

import numpy as np

from delaylog.broker.engine.applying import apply_lease, apply_settle
from delaylog.broker.engine.groups import Group
from delaylog.broker.engine.model import Delivery, Topic, blank_entries
from delaylog.broker.engine.state import EngineState
from delaylog.storage.columns import alike, every, rising, some
from delaylog.storage.gather import scatter_back
from delaylog.storage.layout import (
    INDEX_ENTRY,
    STATE_NONE,
    Cause,
    FrameKind,
    Int64Array,
    MessageState,
    RowArray,
    StateArray,
)
from delaylog.storage.payloads import LeaseDecision, SettleDecision

_ROUNDS_MAX = 64
"""Rounds of ended refs that one call works through before it lets others run."""
_ROUND_REFS = 4_096
"""Refs looked at in a round once the first one met ended refs."""


def receive(
    state: EngineState,
    topic: Topic,
    group: Group,
    *,
    count_max: int,
    lease_ms: int,
    now_ms: int,
) -> Delivery | None:
    """Up to `count_max` messages under a new lease, or None when nothing is ready."""
    room = state.limits.leased_max - state.leases.leased(topic.number, group.number)
    count_max = min(count_max, room)
    if count_max <= 0 or topic.paused:
        return None
    found: list[tuple[Int64Array, RowArray, StateArray]] = []
    left = count_max
    state.hot.drop_read()
    for number in range(_ROUNDS_MAX):
        popped = group.ready.pop(max(left, _ROUND_REFS) if number else left)
        if len(popped) == 0:
            break
        refs, rows, entries = _deliverable(state, topic, group, popped, now_ms)
        if found and len(refs):
            fresh = ~np.isin(refs, np.concatenate([part[0] for part in found]))
            refs, rows, entries = refs[fresh], rows[fresh], entries[fresh]
        group.ready.push_front(refs[left:])
        if len(refs):
            found.append((refs[:left], rows[:left], entries[:left]))
            left -= len(found[-1][0])
        if left == 0:
            break
    else:
        # More may be ready behind what has ended: whoever waits is to ask again.
        state.woken.add((topic.number, group.number))
    if not found:
        return None
    if len(found) == 1:
        refs, rows, entries = found[0]
    else:
        refs, rows, entries = (np.concatenate(column) for column in zip(*found, strict=True))
    return _lease(state, topic, group, refs, rows, entries, lease_ms, now_ms)


def _deliverable(
    state: EngineState, topic: Topic, group: Group, refs: Int64Array, now_ms: int
) -> tuple[Int64Array, RowArray, StateArray]:
    """Of popped refs those that may be handed out, once each; ends those past their ttl."""
    popped = len(refs)
    if len(refs) > 1 and not rising(refs):
        _, first = np.unique(refs, return_index=True)
        if len(first) != len(refs):
            refs = refs[np.sort(first)]
    known = state.hours.known(refs)
    if not every(known):
        refs = refs[known]
    entries = state.hours.get_states(refs, group.number)
    free = entries["state"] == STATE_NONE
    if not every(free):
        refs, entries = refs[free], entries[free]
    if len(refs) < popped:
        group.ready.dropped(popped - len(refs))
        if len(refs) == 0:
            return refs, np.zeros(0, INDEX_ENTRY), entries
    rows = _rows(state, topic, refs, now_ms)
    if topic.number in state.special:
        free = group.free(rows, entries)
        if not every(free):
            group.ready.dropped(int(np.count_nonzero(~free)))
            refs, rows, entries = refs[free], rows[free], entries[free]
    over = rows["expires_at"] <= now_ms
    if some(over):
        end_by_ttl(state, topic, group, refs[over], rows[over], entries[over], now_ms)
        refs, rows, entries = refs[~over], rows[~over], entries[~over]
    return refs, rows, entries


def _rows(state: EngineState, topic: Topic, refs: Int64Array, now_ms: int) -> RowArray:
    """Rows of refs, from copies of hot seconds where there are some."""
    found = state.hot.rows(topic.number, refs, now_ms) if len(state.hot) else None
    if found is None:
        return state.hours.rows(refs)
    mask, rows = found
    if mask is None:
        return rows
    out = np.empty(len(refs), INDEX_ENTRY)
    out[mask] = rows
    out[~mask] = state.hours.rows(refs[~mask])
    return out


def _records(state: EngineState, refs: Int64Array, rows: RowArray) -> bytes:
    """Records of rows that `_rows` returned."""
    copied = state.hot.copied(rows)
    if len(refs) == 0 or not some(copied):
        return state.hours.records(refs, rows)
    if every(copied):
        return state.hot.records(rows)
    return scatter_back(
        [state.hot.records(rows[copied]), state.hours.records(refs[~copied], rows[~copied])],
        [np.flatnonzero(copied), np.flatnonzero(~copied)],
        rows["size"].astype(np.int64),
    )


def end_by_ttl(
    state: EngineState,
    topic: Topic,
    group: Group,
    refs: Int64Array,
    rows: RowArray,
    entries: StateArray,
    now_ms: int,
) -> None:
    """End messages past their ttl: dead after a delivery, expired without one."""
    ended = blank_entries(len(refs))
    ended["attempts"] = entries["attempts"]
    ended["state"] = np.where(entries["attempts"] > 0, MessageState.DEAD, MessageState.EXPIRED)
    ended["cause"] = Cause.TTL
    ended["time"] = now_ms
    settings = topic.settings
    decision = SettleDecision(
        topic.number,
        group.number,
        refs,
        ended,
        None,
        rows["origin"].astype(np.int64),
        now_ms + max(settings.ended_keep_ms, settings.dead_keep_ms),
    )
    _, end = state.append(FrameKind.SETTLE, decision.encode(), now_ms)
    apply_settle(state, decision, end)
    topic.activity.found_ended += len(refs)


def _lease(
    state: EngineState,
    topic: Topic,
    group: Group,
    refs: Int64Array,
    rows: RowArray,
    entries: StateArray,
    lease_ms: int,
    now_ms: int,
) -> Delivery:
    limit = state.limits.receive_bytes_max
    sizes = np.cumsum(rows["size"].astype(np.int64))
    if int(sizes[-1]) > limit:
        fit = max(int(np.searchsorted(sizes, limit, side="right")), 1)
        group.ready.push_front(refs[fit:])
        refs, rows, entries = refs[:fit], rows[:fit], entries[:fit]
    attempts = np.minimum(entries["attempts"].astype(np.int64) + 1, 65_535)
    same = int(attempts[0]) if alike(attempts) else None
    state.lease_number += 1
    number = ((state.epoch_counter & 0xFFFFFF) << 40) | state.lease_number
    decision = LeaseDecision(
        lease=number,
        topic=topic.number,
        group=group.number,
        deadline_ms=now_ms + lease_ms,
        refs=refs,
        attempts=attempts if same is None else same,
    )
    records = _records(state, refs, rows)
    _, end = state.append(FrameKind.LEASE, decision.encode(), now_ms)
    apply_lease(state, decision, end, rows)
    return Delivery(
        number, decision.deadline_ms, rows["origin"].astype(np.int64), rows, records, attempts, end
    )


def peek(
    state: EngineState, topic: Topic, group: Group, *, count_max: int, now_ms: int
) -> tuple[Int64Array, RowArray, StateArray, bytes]:
    """Look at what is ready without leasing: the refs go straight back to the front."""
    refs = group.ready.pop(count_max)
    refs, rows, entries = _deliverable(state, topic, group, refs, now_ms)
    group.ready.push_front(refs)
    return refs, rows, entries, _records(state, refs, rows)
