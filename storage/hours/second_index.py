"""Second index of an hour: per second the newest global index and the count of rows.

It has 3,600 entries of 16 bytes after a header with the number of rows that they cover. The file is
a cache of `delay.index`: if it is missing, torn, or covers too many rows, `rebuild` or `rewind`
restores it from the rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns import every, take_rows
from delaylog.storage.layout import (
    HOUR_SECONDS,
    NO_TAG,
    SECOND_ENTRY,
    SECOND_MAGIC,
    Int64Array,
    RowArray,
    open_file,
    seal_file,
)
from delaylog.storage.messages.rows import seconds_of


@dataclass(slots=True)
class SecondIndex:
    """Heads of the chains of one hour, in memory."""

    newest: npt.NDArray[np.uint32] = field(
        default_factory=lambda: np.zeros(HOUR_SECONDS, np.uint32)
    )
    count: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros(HOUR_SECONDS, np.uint32))
    covers: int = 0

    def encode(self) -> bytes:
        """The file's bytes."""
        entries = np.zeros(HOUR_SECONDS, SECOND_ENTRY)
        entries["newest"] = self.newest
        entries["count"] = self.count
        return seal_file(SECOND_MAGIC, entries.tobytes(), a=self.covers)

    @classmethod
    def decode(cls, data: bytes) -> SecondIndex | None:
        """The index in `data`, or None if a byte is wrong."""
        opened = open_file(SECOND_MAGIC, data)
        if opened is None or len(opened[0]) != HOUR_SECONDS * SECOND_ENTRY.itemsize:
            return None
        entries = np.frombuffer(opened[0], SECOND_ENTRY)
        return cls(
            entries["newest"].astype(np.uint32), entries["count"].astype(np.uint32), opened[1]
        )

    def chain(self, rows: RowArray, seconds: Int64Array) -> ChainUpdate:
        """Set `pre_global_index` and `local_index` of new rows in log order; returns the new heads.

        One stable sort by second: a row's predecessor is the previous row of its second in this
        flush, else the present head. Rows that a compaction removed are in no chain. The index
        itself does not change until `apply`.
        """
        order = np.argsort(seconds.astype(np.uint16), kind="stable")
        living = rows["epoch_tag"] != NO_TAG
        if not every(living):
            order = order[living[order]]
        sorted_seconds = seconds[order]
        n = len(order)
        first = np.ones(n, np.bool_)
        np.not_equal(sorted_seconds[1:], sorted_seconds[:-1], out=first[1:])
        starts = np.flatnonzero(first)
        distinct = sorted_seconds[starts]
        lengths = np.diff(starts, append=n)
        indexes = rows["global_index"][order]
        pre = np.empty(n, np.uint32)
        pre[1:] = indexes[:-1]
        pre[starts] = self.newest[distinct]
        rank = np.arange(n) - np.repeat(starts, lengths)
        local = rank + np.repeat(self.count[distinct].astype(np.int64), lengths) + 1
        rows["pre_global_index"][order] = pre
        rows["local_index"][order] = local
        last = indexes[starts + lengths - 1]
        return ChainUpdate(distinct, last, lengths, self.covers + len(rows))

    def apply(self, update: ChainUpdate) -> None:
        """Advance the heads over rows that are now in the file."""
        self.newest[update.seconds] = update.newest
        self.count[update.seconds] += update.lengths.astype(np.uint32)
        self.covers = update.covers

    def rewind(self, cut: RowArray, hour: int, covers: int) -> None:
        """Undo rows that recovery cuts off: each second falls back to its first cut row's `pre`."""
        cut = _living(cut)
        seconds = seconds_of(cut, hour)
        distinct, firsts, lengths = np.unique(seconds, return_index=True, return_counts=True)
        self.newest[distinct] = cut["pre_global_index"][firsts]
        self.count[distinct] -= lengths.astype(np.uint32)
        self.covers = covers


@dataclass(frozen=True, slots=True)
class ChainUpdate:
    """A flush's change of the heads: the new newest row and the number of rows, per second."""

    seconds: Int64Array
    newest: npt.NDArray[np.uint32]
    lengths: Int64Array
    covers: int


def rebuild(parts: list[tuple[RowArray, int]]) -> SecondIndex:
    """The second index from all rows of an hour, given as consecutive (rows, hour) parts.

    Rows that compaction removed are skipped, but a row's number in its second counts them.
    """
    index = SecondIndex()
    for rows, hour in parts:
        index.covers += len(rows)
        rows = _living(rows)
        seconds = seconds_of(rows, hour)
        # Later rows win an assignment with repeated subscripts, and later means newer here.
        index.newest[seconds] = rows["global_index"]
        index.count[seconds] = rows["local_index"]
    return index


def _living(rows: RowArray) -> RowArray:
    """Rows without those that a compaction removed."""
    living = (rows["epoch_tag"] != NO_TAG) & (rows["global_index"] != 0)
    return rows if every(living) else take_rows(rows, living)
