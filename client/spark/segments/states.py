"""What a row's state is called, for one group, as of a checkpoint.

The files do not say everything: that a message waits or is ready follows from its due time, and
that a purge ended it from where in the log it was sent. The rules are the broker's own (`Group` in
broker/engine/topics/groups.py), on columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from delaylog.storage.layout import (
    HOUR_SHIFT,
    INDEX_BITS,
    STATE_ENDED_FIRST,
    STATE_NONE,
    Cause,
    Int64Array,
    MessageState,
    RowArray,
    StateArray,
)
from pyspark_delaylog.segments.folder import Folder, GroupTable
from pyspark_delaylog.segments.wanted import STATES, Wanted

CODES: Final = {name: code for code, name in enumerate(STATES)}
_MOVED: Final = int(MessageState.MOVED)
_SHOWN: Final = np.full(len(MessageState), CODES["damaged"], np.int64)
for _state in MessageState:
    if _state is not MessageState.NONE:
        _SHOWN[_state] = CODES[_state.name.lower()]


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Rows of one part of an hour that are asked for, as one group sees them."""

    table: GroupTable
    at: Int64Array
    """Which rows of the part."""
    topics: Int64Array
    """Their places in the columns of `table`."""
    entries: StateArray
    """What is stored; of purged rows also what is not."""
    state: Int64Array
    """Codes of their states."""


class PartRows(Protocol):
    """Rows that are read together."""

    rows: RowArray
    good: npt.NDArray[np.bool_]
    """Which of them are what was written."""

    @property
    def hours(self) -> Int64Array:
        """The hour of each."""


def refs_of(hours: Int64Array, rows: RowArray) -> Int64Array:
    """Where rows of some hours stand (make_ref of layout.py, on columns)."""
    tags, index = rows["epoch_tag"].astype(np.int64), rows["global_index"].astype(np.int64)
    out: Int64Array = (hours << HOUR_SHIFT) | (tags << INDEX_BITS) | index
    return out


def group_rows(
    folder: Folder,
    wanted: Wanted,
    part: PartRows,
    table: GroupTable,
    entries: StateArray,
    *,
    moved: bool,
) -> GroupRows:
    """Those of a part's good rows that exist for a group and are asked for."""
    rows, hours = part.rows, part.hours
    due = rows["deliver_at"]
    topics = table.places(rows["topic"])
    sent = rows["sent_position"].astype(np.int64)
    mask = part.good & table.there[topics] & (sent >= table.born[topics])
    mask &= (rows["group"] == 0) | (rows["group"] == table.number)
    mask &= (due >= wanted.due_from_ms) & (due < wanted.due_to_ms)
    at = np.flatnonzero(mask)
    if len(at) < len(rows):
        due, topics, sent, entries = due[at], topics[at], sent[at], entries[at]
    entries = entries.copy()
    kept = entries["state"].astype(np.int64)
    floor = table.floor[topics]
    below = (kept == STATE_NONE) & (sent < floor) & (entries["time"] < floor)
    if below.any():
        entries["cause"][below] = Cause.PURGE
        entries["time"][below] = table.purged_ms[topics[below]]
    fresh = np.where(due <= folder.as_of_ms, CODES["ready"], CODES["waiting"])
    state: Int64Array = np.where(kept == STATE_NONE, fresh, _SHOWN[kept])
    by_purge = (kept == MessageState.DELETED) & (entries["cause"] == Cause.PURGE)
    state[below | by_purge] = CODES["purged"]
    keep = np.ones(len(at), np.bool_)
    if not moved:
        # A message that moved behind the checkpoint would be nowhere if it were not shown: in its
        # first row, whose entry names its newest one and whose hour stays as long as it lives. One
        # that moved before it into an hour that is gone has ended there: it was moved ahead.
        left = np.flatnonzero(kept == _MOVED)
        away = ~folder.holds(entries["forward"][left])
        away &= rows["origin"][at[left]] == refs_of(hours[at[left]], rows[at[left]])
        keep[left] = away & (entries["time"][left] >= folder.as_of_ms)
    if wanted.states is not None:
        keep &= np.isin(state, [CODES[name] for name in wanted.states])
    if not keep.all():
        at, topics, entries, state = at[keep], topics[keep], entries[keep], state[keep]
    return GroupRows(table, at, topics, entries, state)


def times_of(found: GroupRows) -> tuple[Int64Array, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """(times of the entries, which are ends of leases, which are ends of messages)."""
    stored = found.entries["state"].astype(np.int64)
    ended = (stored >= STATE_ENDED_FIRST) & (stored != _MOVED)
    ended |= found.state == CODES["purged"]
    leased = stored == MessageState.LEASED
    return found.entries["time"].astype(np.int64), leased, ended
