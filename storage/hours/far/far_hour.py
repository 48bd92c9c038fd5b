"""Reads one far hour, for code that walks through the rows of hours: lists, counts, jobs, rebuilds.

`FarHour` has the read methods of `DelayHour` except those for chains: a far hour is scanned. Every
read goes through the store, so it stays correct when the hour gets a folder meanwhile. A row is
found by its number at any time, but its `offset` is that of the run it was read from: a merge or a
split moves the records. So records are read in the same turn as their rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import numpy as np

from delaylog.storage.columns.whole_rows import copy_rows
from delaylog.storage.hours.far.far_tier import FarTier
from delaylog.storage.hours.hour_table import HourTable
from delaylog.storage.layout import HOUR_SHIFT, Int64Array, RowArray, StateArray, head_sizes

_SCAN_ROWS: Final = 16_384


class Rows(Protocol):
    """The parts of the store of all hours that a far hour needs."""

    counts: HourTable
    far: FarTier

    def rows(self, refs: Int64Array) -> RowArray:
        """The rows of these refs."""

    def records(self, refs: Int64Array, rows: RowArray) -> bytes:
        """Their records, one after another."""

    def get_states(self, refs: Int64Array, group: int) -> StateArray:
        """Their states in a group."""


class FarHour:
    """Reads one hour of the far tier."""

    def __init__(self, store: Rows, hour: int) -> None:
        self._store = store
        self.hour = hour
        self.folder = store.far.folder

    def _refs(self, indexes: Int64Array) -> Int64Array:
        return indexes.astype(np.int64) | self.hour << HOUR_SHIFT

    def read_rows(self, indexes: Int64Array) -> RowArray:
        """Copies of the rows with these numbers; a row that was dropped is a tombstone."""
        return self._store.rows(self._refs(indexes))

    def read_records(self, rows: RowArray) -> bytes:
        """The records of `rows`, which were read in this turn, one after another."""
        return self._store.records(self._refs(rows["global_index"]), rows)

    def read_heads(self, rows: RowArray) -> bytes:
        """Id, key, tags and headers of `rows`, which were read in this turn, one after another."""
        heads = copy_rows(rows)
        heads["size"] = head_sizes(rows)
        return self.read_records(heads)

    def scan_rows(self) -> Iterator[RowArray]:
        """All rows in parts."""
        counts = self._store.counts.get(self.hour)
        last = counts.rows if counts is not None else 0
        for first in range(1, last + 1, _SCAN_ROWS):
            yield self.read_rows(np.arange(first, min(first + _SCAN_ROWS, last + 1)))

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Do nothing: merges and splits do not wait, since readers read rows again."""
        yield

    def unchecked_records(self, _rows: RowArray) -> list[int]:
        """Return an empty list: blocks are checked as they are read."""
        return []

    def check_records(self, number: int) -> None:
        """Do nothing; see `unchecked_records`."""

    def states(self, group: int) -> FarHourStates:
        """The states of a group."""
        return FarHourStates(self._store, self.hour, group)


class FarHourStates:
    """States of one far hour in one group."""

    def __init__(self, store: Rows, hour: int, group: int) -> None:
        self._store = store
        self._hour = hour
        self._group = group

    @property
    def absent(self) -> bool:
        """Whether no row of the hour can have a state."""
        far = self._store.far
        return self._store.counts.is_far(self._hour) and far.states.untouched(self._group)

    def get(self, indexes: Int64Array) -> StateArray:
        """Copies of the states of rows."""
        refs = indexes.astype(np.int64) | self._hour << HOUR_SHIFT
        return self._store.get_states(refs, self._group)
