"""Determines the states of rows for one group, as of a checkpoint.

Not all states are stored: whether a message is waiting or ready follows from its due time, and
whether a purge ended it follows from its log position. The rules are those of the broker (`Group`
in broker/engine/topics/groups.py), applied to columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
from pyspark_delaylog.segments.files import Part, RunPart
from pyspark_delaylog.segments.folder import Folder, GroupTable
from pyspark_delaylog.segments.options import STATES, Wanted

CODES: Final = {name: code for code, name in enumerate(STATES)}
_MOVED: Final = int(MessageState.MOVED)
_SHOWN: Final = np.full(len(MessageState), CODES["damaged"], np.int64)
for _state in MessageState:
    if _state is not MessageState.NONE:
        _SHOWN[_state] = CODES[_state.name.lower()]


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The selected rows of a part, as one group sees them."""

    table: GroupTable
    at: Int64Array
    """The indexes of the rows in the part."""
    topics: Int64Array
    """Their indexes in the columns of `table`."""
    entries: StateArray
    """The stored entries; for purged rows also the implied values."""
    state: Int64Array
    """The codes of their states."""


def refs_of(hours: Int64Array, rows: RowArray) -> Int64Array:
    """The refs of rows (make_ref of layout.py, on columns)."""
    tags, index = rows["epoch_tag"].astype(np.int64), rows["global_index"].astype(np.int64)
    out: Int64Array = (hours << HOUR_SHIFT) | (tags << INDEX_BITS) | index
    return out


def group_rows(
    folder: Folder,
    wanted: Wanted,
    part: Part | RunPart,
    table: GroupTable,
    entries: StateArray,
    *,
    moved: bool,
) -> GroupRows:
    """The valid rows of a part that the group sees and the query selects."""
    rows, hours = part.rows, part.hours
    due = rows["deliver_at"]
    topics = table.places(rows["topic"])
    sent = rows["sent_position"].astype(np.int64)
    mask = part.good & table.there[topics] & (sent >= table.born[topics])
    mask &= (rows["group"] == 0) | (rows["group"] == table.number)
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
    replaced = (kept == MessageState.CANCELLED) & (entries["cause"] == Cause.REPLACED)
    state[replaced] = CODES["replaced"]
    state[below] = CODES["cancelled"]
    keep = np.ones(len(at), np.bool_)
    if not moved:
        # A message that moved after the checkpoint must be shown in its first row, otherwise it
        # would be missing. The entry of that row names the newest row, and its hour stays while the
        # message is live. A message that moved earlier, into a deleted hour, has ended there.
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
    """(times of the entries, which of them are lease ends, which are message ends)."""
    stored = found.entries["state"].astype(np.int64)
    ended = (stored >= STATE_ENDED_FIRST) & (stored != _MOVED)
    # A purge stores no states.
    ended |= found.state == CODES["cancelled"]
    leased = stored == MessageState.LEASED
    return found.entries["time"].astype(np.int64), leased, ended
