"""Which rows a compaction may remove: those that ended in every group and lead to no other row.

Rows are checked in slices, since their states, and the rows that messages have moved to, must be
read. A row that has ended stays ended, whatever frames come between two slices.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

import numpy as np

from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns.questions import Mask, distinct
from delaylog.storage.columns.whole_rows import concat_rows, put_rows, take_rows
from delaylog.storage.layout import (
    INDEX_ENTRY,
    STATE_ENTRY,
    Cause,
    Int64Array,
    MessageState,
    RowArray,
    StateArray,
)

_STATES_ROWS: Final = 1_024
"""Rows whose states are read in one slice."""
_MOVED_ROWS: Final = 128
"""Rows that messages moved to, read in one slice: each takes a read of its own."""
_MOVED: Final = int(MessageState.MOVED)
_FINAL: Final = np.array(
    [int(MessageState.ACKED), int(MessageState.EXPIRED), int(MessageState.CANCELLED)], np.uint8
)


@dataclass(slots=True)
class _Targets:
    """The rows that `refs` name, as far as they exist."""

    refs: Int64Array
    at: Int64Array
    """Index into `refs` for each row."""
    rows: RowArray


def removable_rows(
    state: EngineState, refs: Int64Array, rows: RowArray, now_ms: int
) -> Generator[None, None, tuple[Mask, Mask]]:
    """(rows that may be removed, origins of which only the record may be removed)."""
    gone, bare = np.ones(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    for number in distinct(rows["topic"]).tolist():
        topic = state.by_number.get(number)
        if topic is None:
            # The topic was dropped, or the row was removed before (its topic number is 0).
            continue
        at = np.flatnonzero(rows["topic"] == number)
        mine, their_refs = take_rows(rows, at), refs[at]
        over, leads = np.ones(len(at), np.bool_), np.zeros(len(at), np.bool_)
        targets = _Targets(np.zeros(0, np.int64), np.zeros(0, np.int64), mine[:0])
        for group in list(topic.groups.values()):
            entries = yield from _states(state, their_refs, group)
            there = group.has(mine)
            mine_over = _over(topic, group, mine, entries, now_ms) | ~there
            moved = there & (entries["state"] == _MOVED)
            mine_over |= moved
            mine_leads = moved & (mine["origin"] == their_refs)
            which = np.flatnonzero(mine_leads)
            if len(which):
                forward = entries["forward"][which].astype(np.int64)
                if not np.array_equal(forward, targets.refs):
                    # Read again for each group only if messages moved to different rows.
                    targets = yield from _targets(state, forward)
                states = yield from _states(state, forward[targets.at], group)
                living = ~_over(topic, group, targets.rows, states, now_ms)
                mine_leads[which] = False
                mine_leads[which[targets.at]] = living
            over &= mine_over
            leads |= mine_leads
        gone[at], bare[at] = over & ~leads, over & leads
    return gone, bare


def _states(
    state: EngineState, refs: Int64Array, group: Group
) -> Generator[None, None, StateArray]:
    """Their states in a group, read in order of hour, so that few files are open at a time."""
    out = np.zeros(len(refs), STATE_ENTRY)
    order = np.argsort(refs, kind="stable")
    for first in range(0, len(refs), _STATES_ROWS):
        part = order[first : first + _STATES_ROWS]
        # An hour may have been removed since the last slice.
        part = part[state.hours.known(refs[part])]
        put_rows(out, part, state.hours.get_states(refs[part], group.number))
        yield None
    return out


def _targets(state: EngineState, refs: Int64Array) -> Generator[None, None, _Targets]:
    """The rows that messages moved to, as far as they exist."""
    hours = state.hours
    parts, found = [np.zeros(0, np.int64)], [np.zeros(0, INDEX_ENTRY)]
    order = np.argsort(refs, kind="stable")
    for first in range(0, len(refs), _MOVED_ROWS):
        part = order[first : first + _MOVED_ROWS]
        part = part[hours.known(refs[part])]
        rows = hours.rows(refs[part])
        named = np.flatnonzero(hours.check_tags(refs[part], rows))
        parts.append(part[named])
        found.append(take_rows(rows, named))
        yield None
    return _Targets(refs, np.concatenate(parts), concat_rows(found))


def _over(topic: Topic, group: Group, rows: RowArray, entries: StateArray, now_ms: int) -> Mask:
    """Which rows have ended in a group and are past their keep time."""
    kinds = entries["state"]
    keep_ms = topic.settings.ended_keep_ms
    final = np.isin(kinds, _FINAL)
    past = (entries["time"] + keep_ms < now_ms) | (entries["cause"] == int(Cause.FORGOTTEN))
    out: Mask = final & past
    purged = group.purged(rows, entries) if group.floor else np.zeros(len(rows), np.bool_)
    if group.purged_ms + keep_ms < now_ms:
        out |= purged
    if topic.erased:
        # Messages to erase must not be readable or replayed any more.
        erased = rows["sent_position"] < topic.erased
        out |= erased & (final | purged | (kinds == int(MessageState.DEAD)))
    return out
