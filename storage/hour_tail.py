"""Tails: rows that are applied but not yet in their hour's files.

A frame whose rows fall into few hours becomes one chunk per hour. A frame spread thinly over many
hours stays one loose block, so that nothing is done per message until the splitter sorts the
whole pile once; a look-up into an hour first breaks the loose blocks up. Rows stay here, and
answer every look-up, until their flush has been taken over by the hour.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

import numpy as np

from delaylog.storage.batch import Block
from delaylog.storage.gather import concat_rows, gather, scatter_back
from delaylog.storage.layout import INDEX_ENTRY, Int64Array, RowArray
from delaylog.storage.rows import PlacedRows

_ROWS_PER_HOUR_MIN: Final = 64
_DIRECT_HOURS_MAX: Final = 4
_OVERHEAD_BYTES: Final = 400


@dataclass(slots=True, eq=False)
class TailChunk:
    """Consecutive rows of one hour from one frame. `offset` of a row points into `data`."""

    first_index: int
    rows: RowArray
    data: Block
    dense: bool
    """The rows' records are exactly `data`, in order: it can be written as it is."""
    position: int

    @property
    def last_index(self) -> int:
        return self.first_index + len(self.rows) - 1


class HourTail:
    """Chunks of one hour in index order."""

    __slots__ = ("chunks", "firsts")

    def __init__(self) -> None:
        self.chunks: list[TailChunk] = []
        self.firsts: list[int] = []

    def add(self, chunk: TailChunk) -> None:
        self.chunks.append(chunk)
        self.firsts.append(chunk.first_index)

    def rows(self, indexes: Int64Array) -> RowArray:
        """Copies of the rows `indexes`, each with its own `global_index`."""
        out = np.empty(len(indexes), INDEX_ENTRY)
        for mask, chunk in self._split(indexes):
            out[mask] = chunk.rows[indexes[mask] - chunk.first_index]
        return out

    def records(self, indexes: Int64Array) -> bytes:
        """Their records, one after another."""
        pieces = list(self._split(indexes))
        if len(pieces) == 1:
            chunk = pieces[0][1]
            rows = chunk.rows[indexes - chunk.first_index]
            return gather(
                chunk.data, rows["offset"].astype(np.int64), rows["size"].astype(np.int64)
            )
        if (np.diff(indexes) > 0).all():
            # Ascending rows meet the chunks in order, so each chunk gives one stretch.
            return b"".join(self._stretch(chunk, indexes[mask]) for mask, chunk in pieces)
        sizes = np.empty(len(indexes), np.int64)
        for mask, chunk in pieces:
            sizes[mask] = chunk.rows["size"][indexes[mask] - chunk.first_index]
        return scatter_back(
            [self._stretch(chunk, indexes[mask]) for mask, chunk in pieces],
            [mask for mask, _ in pieces],
            sizes,
        )

    @staticmethod
    def _stretch(chunk: TailChunk, indexes: Int64Array) -> bytes:
        rows = chunk.rows[indexes - chunk.first_index]
        return gather(chunk.data, rows["offset"].astype(np.int64), rows["size"].astype(np.int64))

    def _split(self, indexes: Int64Array) -> list[tuple[Int64Array, TailChunk]]:
        """(positions in `indexes`, chunk) for every chunk that holds some of them."""
        low, high = int(indexes.min()), int(indexes.max())
        first = bisect_right(self.firsts, low) - 1
        assert first >= 0, "the caller splits tail from file"
        if high <= self.chunks[first].last_index:
            return [(np.arange(len(indexes)), self.chunks[first])]
        which = np.searchsorted(np.array(self.firsts[first:]), indexes, side="right") - 1 + first
        return [
            (np.flatnonzero(which == number), self.chunks[number])
            for number in np.unique(which).tolist()
        ]


class TailPile:
    """All tails, with the loose blocks and the bytes they take."""

    def __init__(self) -> None:
        self._tails: dict[int, HourTail] = {}
        self._loose: list[PlacedRows] = []
        self.size_bytes = 0

    def add(self, placed: PlacedRows) -> None:
        """Take rows (numbered already) in; they are visible at once."""
        rows = placed.rows
        n = len(rows)
        self.size_bytes += len(placed.data) + n * INDEX_ENTRY.itemsize + _OVERHEAD_BYTES
        hours = len(placed.hours)
        if hours > _DIRECT_HOURS_MAX and n < hours * _ROWS_PER_HOUR_MIN:
            self._loose.append(placed)
        else:
            self._add_chunks(placed)

    def _add_chunks(self, placed: PlacedRows) -> None:
        whole = len(placed.hours) == 1 and placed.order is None
        for k, hour in enumerate(placed.hours):
            rows = placed.rows[placed.starts[k] : placed.starts[k + 1]]
            tail = self._tails.get(hour)
            if tail is None:
                tail = self._tails[hour] = HourTail()
            first = int(rows["global_index"][0])
            tail.add(TailChunk(first, rows, placed.data, whole, placed.position))

    def tail(self, hour: int) -> HourTail | None:
        """The tail of an hour; breaks loose blocks up first."""
        if self._loose:
            self._break_up()
        return self._tails.get(hour)

    def _break_up(self) -> None:
        """Turn every loose block into chunks of its hours."""
        loose, self._loose = self._loose, []
        for placed in loose:
            self._add_chunks(placed)
        for tail in self._tails.values():
            if any(a > b for a, b in itertools.pairwise(tail.firsts)):
                tail.chunks.sort(key=lambda chunk: chunk.first_index)
                tail.firsts = [chunk.first_index for chunk in tail.chunks]

    @property
    def has_loose(self) -> bool:
        """Whether blocks wait that are spread thinly over many hours."""
        return bool(self._loose)

    @property
    def empty(self) -> bool:
        """No row waits to be flushed."""
        return not self._tails and not self._loose

    def take(self, *, upto: int, hour: int | None = None) -> list[tuple[int, list[TailChunk]]]:
        """Chunks of frames below position `upto`, per hour; they stay here until `drop`.

        With `hour`, only that hour's. Loose blocks that `merge` has not sorted are broken up.
        """
        if hour is None:
            if any(placed.position < upto for placed in self._loose):
                self._break_up()
            hours = sorted(self._tails)
        else:
            hours = [hour] if self.tail(hour) is not None else []
        out = []
        for which in hours:
            chunks = []
            for chunk in self._tails[which].chunks:
                if chunk.position >= upto:
                    break
                chunks.append(chunk)
            if chunks:
                out.append((which, chunks))
        return out

    def begin_merge(self, upto: int) -> list[PlacedRows]:
        """Loose blocks of frames below `upto`, to be sorted by `sort_loose` in any thread."""
        return [placed for placed in self._loose if placed.position < upto]

    def end_merge(self, blocks: list[PlacedRows], merged: list[tuple[int, TailChunk]]) -> None:
        """Take sorted chunks in place of their blocks, unless a look-up broke those up."""
        if self._loose[: len(blocks)] != blocks:
            return
        self._loose = self._loose[len(blocks) :]
        for hour, chunk in merged:
            tail = self._tails.setdefault(hour, HourTail())
            if tail.chunks and tail.chunks[-1].last_index >= chunk.first_index:
                _weave(tail, chunk)
            else:
                tail.add(chunk)

    def drop(self, hour: int, chunks: list[TailChunk]) -> None:
        """Forget flushed chunks (the oldest of their hour)."""
        tail = self._tails[hour]
        gone = len(chunks)
        assert tail.chunks[:gone] == chunks, "flushes take the oldest chunks of an hour"
        del tail.chunks[:gone], tail.firsts[:gone]
        if not tail.chunks:
            del self._tails[hour]
        if not self._tails and not self._loose:
            self.size_bytes = 0
        else:
            rows = sum(len(chunk.rows) for chunk in chunks)
            size = sum(int(chunk.rows["size"].sum()) for chunk in chunks)
            self.size_bytes -= size + rows * INDEX_ENTRY.itemsize
            self.size_bytes = max(self.size_bytes, 0)


def sort_loose(blocks: list[PlacedRows]) -> list[tuple[int, TailChunk]]:
    """All rows of loose blocks sorted by (hour, index): one chunk an hour.

    Pure, so that a worker can do it: it costs a tenth of a second for a full pile. The blocks'
    rows are not changed.
    """
    rows = concat_rows([p.rows for p in blocks])
    lengths = [len(p.rows) for p in blocks]
    bases = np.cumsum([0, *(len(p.data) for p in blocks)])[:-1]
    rows["offset"] += np.repeat(bases, lengths).astype(np.uint64)
    data = blocks[0].data if len(blocks) == 1 else b"".join(p.data for p in blocks)
    hour = np.concatenate([np.repeat(np.array(p.hours), np.diff(p.starts)) for p in blocks])
    low = int(hour.min())
    span = int(hour.max()) - low
    # A stable sort keeps log order inside an hour; 16-bit keys sort in linear time.
    key = (hour - low).astype(np.uint16) if span < 1 << 16 else hour
    order = np.argsort(key, kind="stable")
    rows, hour = rows[order], hour[order]
    cuts = np.flatnonzero(np.diff(hour)) + 1
    bounds = [0, *cuts.tolist(), len(rows)]
    firsts = rows["global_index"][bounds[:-1]].tolist()
    hours = hour[bounds[:-1]].tolist()
    position = blocks[-1].position
    return [
        (hours[k], TailChunk(firsts[k], rows[bounds[k] : bounds[k + 1]], data, False, position))
        for k in range(len(hours))
    ]


def _weave(tail: HourTail, chunk: TailChunk) -> None:
    """Insert a merged chunk whose rows alternate with chunks that are already there."""
    firsts = np.array(tail.firsts)
    at = np.searchsorted(firsts, chunk.rows["global_index"])
    cuts = np.flatnonzero(
        (np.diff(at) != 0) | (np.diff(chunk.rows["global_index"].astype(np.int64)) != 1)
    )
    bounds = [0, *(cuts + 1).tolist(), len(chunk.rows)]
    for a, b in itertools.pairwise(bounds):
        part = chunk.rows[a:b]
        first = int(part["global_index"][0])
        tail.chunks.append(TailChunk(first, part, chunk.data, False, chunk.position))
    tail.chunks.sort(key=lambda c: c.first_index)
    tail.firsts = [c.first_index for c in tail.chunks]
