"""What may be handed out: refs are hints, states and rows decide.

What is met past its ttl is ended here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.applying import apply_settle
from delaylog.broker.engine.filters import TagFilter
from delaylog.broker.engine.groups import Group
from delaylog.broker.engine.model import Topic, blank_entries
from delaylog.broker.engine.state import EngineState
from delaylog.storage.columns import every, rising, some
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
from delaylog.storage.payloads import SettleDecision
from delaylog.storage.rows import heads_of


def deliverable(
    state: EngineState, topic: Topic, group: Group, refs: Int64Array, now_ms: int
) -> tuple[Int64Array, RowArray, StateArray, int]:
    """Of refs those that may be handed out, once each; ends those past their ttl.

    Also how many refs meant nothing any more: repeated, or ended or moved before.
    """
    asked = len(refs)
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
    if len(refs) == 0:
        return refs, np.zeros(0, INDEX_ENTRY), entries, asked
    rows = _rows(state, topic, refs, now_ms)
    if topic.number in state.special:
        free = group.free(rows, entries)
        if not every(free):
            refs, rows, entries = refs[free], rows[free], entries[free]
    stale = asked - len(refs)
    over = rows["expires_at"] <= now_ms
    if some(over):
        end_by_ttl(state, topic, group, refs[over], rows[over], entries[over], now_ms)
        refs, rows, entries = refs[~over], rows[~over], entries[~over]
    return refs, rows, entries, stale


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


def records_of(state: EngineState, refs: Int64Array, rows: RowArray) -> bytes:
    """Records of rows that `deliverable` returned."""
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


def with_tags(
    state: EngineState, refs: Int64Array, rows: RowArray, only: TagFilter
) -> npt.NDArray[np.bool_]:
    """Which rows match a filter by their stored tags."""
    heads = heads_of(rows, "id_size", "key_size", "tags_size")
    records = records_of(state, refs, heads)
    ends = np.cumsum(heads["size"].astype(np.int64))
    starts = ends - rows["tags_size"]
    tags = [records[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    return only.exact_match(tags)


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
    unseen = MessageState.DEAD if topic.settings.dead_expired else MessageState.EXPIRED
    ended["state"] = np.where(entries["attempts"] > 0, MessageState.DEAD, unseen)
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
