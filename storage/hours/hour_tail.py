"""The tail of one hour: rows that are not in its files yet, in chunks of consecutive rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from delaylog.storage.columns.gather import gather, scatter_back
from delaylog.storage.columns.questions import distinct, rising
from delaylog.storage.columns.whole_rows import put_rows, take_rows
from delaylog.storage.layout import INDEX_ENTRY, INDEX_ENTRY_SIZE, Int64Array, RowArray
from delaylog.storage.messages.batch import Block

_ROWS_PER_CHUNK_FEW: Final = 16
"""With fewer wanted rows than this for each chunk, a look-up goes row by row."""


@dataclass(slots=True, eq=False)
class TailChunk:
    """Consecutive rows of one hour from one frame. `offset` of a row points into `data`."""

    first_index: int
    rows: RowArray
    data: Block
    dense: bool
    """Whether `data` consists of exactly the rows' records, in order: it is written unchanged."""
    position: int
    extra_bytes: int = 0
    """Other memory of its frame than rows and records; counted in the frame's first chunk."""
    raw: memoryview | None = field(default=None, repr=False)
    """The bytes of `rows`, once they are needed."""

    @property
    def last_index(self) -> int:
        return self.first_index + len(self.rows) - 1

    def places(self, run: slice) -> slice:
        """Places of consecutive rows, all of which are in this chunk."""
        return slice(run.start - self.first_index, run.stop - self.first_index)

    def raw_row(self, at: int) -> memoryview:
        """The bytes of one row."""
        raw = self.raw
        if raw is None:
            raw = self.raw = self.rows.view(np.uint8).data
        return raw[at * INDEX_ENTRY_SIZE : (at + 1) * INDEX_ENTRY_SIZE]


class HourTail:
    """Chunks of one hour in index order."""

    __slots__ = ("chunks", "firsts")

    def __init__(self) -> None:
        self.chunks: list[TailChunk] = []
        self.firsts: list[int] = []

    def add(self, chunk: TailChunk) -> None:
        self.chunks.append(chunk)
        self.firsts.append(chunk.first_index)

    def rows(self, indexes: Int64Array, run: slice | None = None) -> RowArray:
        """Copies of the rows `indexes`; `run` = the same rows as a slice, if known."""
        if run is not None and (chunk := self._chunk_of(run)) is not None:
            return take_rows(chunk.rows, chunk.places(run))
        first, last = self._chunk_span(indexes)
        if first == last:
            chunk = self.chunks[first]
            return take_rows(chunk.rows, indexes - chunk.first_index)
        if len(indexes) < (last - first + 1) * _ROWS_PER_CHUNK_FEW:
            raw = b"".join([chunk.raw_row(at) for chunk, at in self._each(indexes)])
            return np.frombuffer(raw, INDEX_ENTRY)
        out = np.empty(len(indexes), INDEX_ENTRY)
        for mask, chunk in self._split(indexes, first):
            put_rows(out, mask, take_rows(chunk.rows, indexes[mask] - chunk.first_index))
        return out

    def records(self, indexes: Int64Array, rows: RowArray, run: slice | None = None) -> bytes:
        """The records of these rows, concatenated, or the beginning of each record.

        `rows` is the result of `rows(indexes)`; a smaller size requests only the beginning.
        """
        if run is not None and (chunk := self._chunk_of(run)) is not None and chunk.dense:
            first, last = int(rows["offset"][0]), rows[-1]
            end = int(last["offset"]) + int(last["size"])
            # The beginnings of records are not adjacent.
            if int(rows["size"].sum()) == end - first:
                return bytes(chunk.data[first:end])
        starts, sizes = rows["offset"].astype(np.int64), rows["size"].astype(np.int64)
        first, last = self._chunk_span(indexes)
        if first == last:
            return gather(self.chunks[first].data, starts, sizes)
        if len(indexes) < (last - first + 1) * _ROWS_PER_CHUNK_FEW:
            ends = (starts + sizes).tolist()
            places = zip(self._each(indexes), starts.tolist(), ends, strict=True)
            return b"".join([chunk.data[a:b] for (chunk, _), a, b in places])
        pieces = self._split(indexes, first)
        parts = [gather(chunk.data, starts[mask], sizes[mask]) for mask, chunk in pieces]
        if rising(indexes):
            # With ascending rows, the parts of the chunks are in order already.
            return b"".join(parts)
        return scatter_back(parts, [mask for mask, _ in pieces], sizes)

    def chunk_with(self, index: int) -> tuple[TailChunk, int]:
        """(the chunk of one row, the row's place in it)."""
        chunk = self.chunks[bisect_right(self.firsts, index) - 1]
        return chunk, index - chunk.first_index

    def _chunk_of(self, run: slice) -> TailChunk | None:
        """The chunk with all rows of a run, or None if there is none."""
        at = bisect_right(self.firsts, run.start) - 1
        assert at >= 0, "the caller splits tail from file"
        chunk = self.chunks[at]
        return chunk if run.stop - 1 <= chunk.last_index else None

    def _chunk_span(self, indexes: Int64Array) -> tuple[int, int]:
        """Places of the first and the last chunk that may have some of `indexes`."""
        first = bisect_right(self.firsts, int(indexes.min())) - 1
        assert first >= 0, "the caller splits tail from file"
        return first, bisect_right(self.firsts, int(indexes.max()), lo=first) - 1

    def _each(self, indexes: Int64Array) -> Iterator[tuple[TailChunk, int]]:
        """(chunk, place in it) for each row: the cheapest way for few rows of many chunks.

        Messages with short delays often come from single sends, so that each row has a chunk. A
        mask for each chunk would then cost ten times as much as a step for each row.
        """
        firsts, chunks = self.firsts, self.chunks
        for index in indexes.tolist():
            chunk = chunks[bisect_right(firsts, index) - 1]
            yield chunk, index - chunk.first_index

    def _split(self, indexes: Int64Array, first: int) -> list[tuple[Int64Array, TailChunk]]:
        """(places in `indexes`, chunk) for every chunk that has some of them."""
        which = np.searchsorted(np.array(self.firsts[first:]), indexes, side="right") - 1 + first
        return [
            (np.flatnonzero(which == number), self.chunks[number])
            for number in distinct(which).tolist()
        ]
