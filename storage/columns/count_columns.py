"""Counts by hour in two sorted columns: eight bytes an hour, where a dictionary takes a hundred.

Hours with a count of zero are absent. An empty table allocates nothing, since there are many tables
and most are empty. Counts of a few hours are added by binary search, those of many hours by one
merge of columns.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import ItemsView, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns.questions import every

MERGE_MIN: Final = 16
"""From this number of hours on, a merge of columns is faster than a search for each."""
RUN_MAX: Final = 64
"""Up to this number of hours that are neighbours in the table, as those of a batch over one day
are, adding one by one is faster than a merge."""
_U32: Final = "I"
assert array(_U32).itemsize == 4, "hours and counts have 32 bits each"
_PAIR: Final = struct.Struct("<qq")
_NONE: Final = array(_U32)
"""The columns of every empty table: shared, never changed."""


class CountColumns(Mapping[int, int]):
    """Positive counts by hour, in ascending order of hours."""

    __slots__ = ("_counts", "_hours")

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._hours = self._counts = _NONE
        if counts:
            self.add(counts, 1)

    def __len__(self) -> int:
        return len(self._hours)

    def __iter__(self) -> Iterator[int]:
        return iter(self._hours.tolist())

    def __getitem__(self, hour: int) -> int:
        at = bisect_left(self._hours, hour)
        if at == len(self._hours) or self._hours[at] != hour:
            raise KeyError(hour)
        return self._counts[at]

    def items(self) -> ItemsView[int, int]:
        """Pairs, without a search for each."""
        return _Pairs(self)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """The same pairs as an iterator over copies: the table may change meanwhile."""
        return zip(self._hours.tolist(), self._counts.tolist(), strict=True)

    def columns(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(hours, counts), as copies."""
        hours = np.array(self._hours, np.uint32)
        return hours.astype(np.int64), np.array(self._counts, np.uint32).astype(np.int64)

    def append_to(self, hours: array[int], counts: array[int]) -> None:
        """Append the pairs to two columns of 32 bits, which join those of many tables."""
        hours += self._hours
        counts += self._counts

    def add(self, counts: Mapping[int, int], times: int) -> None:
        """Add the counts of some hours, multiplied by `times`; no sum may fall below zero."""
        if len(counts) < MERGE_MIN:
            for hour, n in counts.items():
                if n:
                    self._add(hour, times * n)
        elif len(counts) > RUN_MAX or times < 0 or not self._add_to_run(counts, times):
            self._merge(counts, times)

    def _add_to_run(self, counts: Mapping[int, int], times: int) -> bool:
        """Add to hours that are neighbours in the table in this order; False if they are not."""
        at = bisect_left(self._hours, next(iter(counts)))
        if self._hours[at : at + len(counts)] != array(_U32, counts):
            return False
        for place, n in enumerate(counts.values(), at):
            self._counts[place] += times * n
        return True

    def _add(self, hour: int, n: int) -> None:
        hours = self._hours
        at = bisect_left(hours, hour)
        if at < len(hours) and hours[at] == hour:
            total = self._counts[at] + n
            if total:
                self._counts[at] = total
            else:
                del hours[at], self._counts[at]
            return
        if hours is _NONE:
            hours = self._hours = array(_U32)
            self._counts = array(_U32)
        hours.insert(at, hour)
        self._counts.insert(at, n)

    def _merge(self, counts: Mapping[int, int], times: int) -> None:
        hours = np.fromiter(counts, np.int64, len(counts))
        added = np.fromiter(counts.values(), np.int64, len(counts)) * times
        mine = np.frombuffer(self._hours, np.uint32)
        at = mine.searchsorted(hours)
        if int(at.max()) < len(mine) and every(mine[at] == hours):
            # The usual case: all hours are in the table, and keep a count above zero.
            kept = np.frombuffer(self._counts, np.uint32)
            sums = kept[at] + added
            if int(sums.min()) > 0:
                kept[at] = sums
                return
        all_hours = np.concatenate((mine.astype(np.int64), hours))
        union, place = np.unique(all_hours, return_inverse=True)
        sums = np.zeros(len(union), np.int64)
        sums[place[: len(mine)]] = np.frombuffer(self._counts, np.uint32)
        sums[place[len(mine) :]] += added
        assert not len(sums) or int(sums.min()) >= 0, "no count falls below zero"
        left = sums != 0
        if not every(left):
            union, sums = union[left], sums[left]
        self._hours, self._counts = _column(union), _column(sums)

    def pack(self) -> bytes:
        """The bytes for a checkpoint: pairs of hour and count, as int64."""
        if not len(self._hours):
            return b""
        return np.column_stack(self.columns()).astype("<i8").tobytes()

    @classmethod
    def unpack(cls, raw: bytes) -> CountColumns:
        """The table from a checkpoint."""
        out = cls()
        if raw:
            # Most tables have one hour, for which numpy's fixed cost is not worth it.
            pairs = list(_PAIR.iter_unpack(raw))
            out._hours = array(_U32, [hour for hour, _ in pairs])
            out._counts = array(_U32, [count for _, count in pairs])
        return out


class _Pairs(ItemsView[int, int]):
    def __init__(self, columns: CountColumns) -> None:
        super().__init__(columns)
        self._columns = columns

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return self._columns.pairs()


def _column(values: npt.NDArray[np.generic]) -> array[int]:
    return array(_U32, values.astype(np.uint32).tobytes())
