"""Tails: rows that are applied but not yet in their hour's files.

A frame whose rows fall into few hours becomes one chunk per hour. A frame spread thinly over many
hours stays one loose block, so that nothing is done per message until the splitter sorts the
whole pile once; a look-up into an hour first breaks the loose blocks up. Rows stay here, and
answer every look-up, until their flush has been taken over by the hour.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from delaylog.storage.columns.gather import gather, scatter_back
from delaylog.storage.columns.questions import distinct, rising
from delaylog.storage.columns.whole_rows import concat_rows, put_rows, take_rows
from delaylog.storage.layout import INDEX_ENTRY, INDEX_ENTRY_SIZE, Int64Array, RowArray
from delaylog.storage.messages.batch import Block
from delaylog.storage.messages.rows import PlacedRows

if TYPE_CHECKING:
    from delaylog.storage.hours.far.far_pile import FarPile

_ROWS_PER_HOUR_MIN: Final = 64
_DIRECT_HOURS_MAX: Final = 4
_OVERHEAD_BYTES: Final = 400
_ROWS_PER_CHUNK_FEW: Final = 16
"""Below so many rows a chunk, a look-up goes row by row."""


@dataclass(slots=True, eq=False)
class TailChunk:
    """Consecutive rows of one hour from one frame. `offset` of a row points into `data`."""

    first_index: int
    rows: RowArray
    data: Block
    dense: bool
    """The rows' records are exactly `data`, in order: it can be written as it is."""
    position: int
    extra_bytes: int = 0
    """What its frame took beside rows and their records; the first chunk of a frame bears it."""
    _raw: memoryview | None = field(default=None, init=False, repr=False)

    @property
    def last_index(self) -> int:
        return self.first_index + len(self.rows) - 1

    def places(self, run: slice) -> slice:
        """Where rows that follow one another, all of them here, stand."""
        return slice(run.start - self.first_index, run.stop - self.first_index)

    def raw_row(self, at: int) -> memoryview:
        """The bytes of one row."""
        raw = self._raw
        if raw is None:
            raw = self._raw = self.rows.view(np.uint8).data
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
        """Copies of the rows `indexes`, each with its own `global_index`.

        `run` = the slice that `indexes` is, if it is known to be one.
        """
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
        """Their records, one after another, or the begins of them.

        `rows` is what `rows(indexes)` said, with smaller sizes where only begins are wanted.
        """
        if run is not None and (chunk := self._chunk_of(run)) is not None and chunk.dense:
            first, last = int(rows["offset"][0]), rows[-1]
            end = int(last["offset"]) + int(last["size"])
            # Asked for the begins of records only, they do not stand side by side.
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
            # Ascending rows meet the chunks in order, so each chunk gives one stretch.
            return b"".join(parts)
        return scatter_back(parts, [mask for mask, _ in pieces], sizes)

    def _chunk_of(self, run: slice) -> TailChunk | None:
        """The chunk that holds all rows of a run, if one does."""
        at = bisect_right(self.firsts, run.start) - 1
        assert at >= 0, "the caller splits tail from file"
        chunk = self.chunks[at]
        return chunk if run.stop - 1 <= chunk.last_index else None

    def _chunk_span(self, indexes: Int64Array) -> tuple[int, int]:
        """Places of the first and the last chunk that can hold some of `indexes`."""
        first = bisect_right(self.firsts, int(indexes.min())) - 1
        assert first >= 0, "the caller splits tail from file"
        return first, bisect_right(self.firsts, int(indexes.max()), lo=first) - 1

    def _each(self, indexes: Int64Array) -> Iterator[tuple[TailChunk, int]]:
        """(chunk, place in it) row by row: what is cheapest for few rows of many chunks.

        A turn's worth of short delays comes from as many sends as there are rows; one mask a
        chunk would cost ten times what one step a row does.
        """
        firsts, chunks = self.firsts, self.chunks
        for index in indexes.tolist():
            chunk = chunks[bisect_right(firsts, index) - 1]
            yield chunk, index - chunk.first_index

    def _split(self, indexes: Int64Array, first: int) -> list[tuple[Int64Array, TailChunk]]:
        """(positions in `indexes`, chunk) for every chunk that holds some of them."""
        which = np.searchsorted(np.array(self.firsts[first:]), indexes, side="right") - 1 + first
        return [
            (np.flatnonzero(which == number), self.chunks[number])
            for number in distinct(which).tolist()
        ]


class TailPile:
    """All tails, with the loose blocks and the bytes they take."""

    def __init__(self, far: FarPile) -> None:
        """`far` = what waits of far hours."""
        self._far = far
        self._tails: dict[int, HourTail] = {}
        self._loose: list[PlacedRows] = []
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Memory of all rows and records that wait."""
        return self._size_bytes + self._far.size_bytes

    def add(self, placed: PlacedRows) -> None:
        """Take rows (numbered already) in; they are visible at once."""
        rows = placed.rows
        n = len(rows)
        if not n:
            return
        self._size_bytes += len(placed.data) + n * INDEX_ENTRY.itemsize + _OVERHEAD_BYTES
        hours = len(placed.hours)
        if hours > _DIRECT_HOURS_MAX and n < hours * _ROWS_PER_HOUR_MIN:
            self._loose.append(placed)
        else:
            self._add_chunks(placed)

    def _add_chunks(self, placed: PlacedRows) -> None:
        whole = len(placed.hours) == 1 and placed.order is None
        extra = _OVERHEAD_BYTES if whole else _extra_bytes(placed)
        for k, hour in enumerate(placed.hours):
            rows = placed.rows[placed.starts[k] : placed.starts[k + 1]]
            tail = self._tails.get(hour)
            if tail is None:
                tail = self._tails[hour] = HourTail()
            first = int(rows["global_index"][0])
            tail.add(TailChunk(first, rows, placed.data, whole, placed.position, extra))
            extra = 0

    def adopt(self, hour: int, chunks: list[TailChunk]) -> None:
        """Take in the rows of an hour that is no longer a far one."""
        for chunk in chunks:
            self._tails.setdefault(hour, HourTail()).add(chunk)
            size = int(chunk.rows["size"].sum(dtype=np.int64))
            self._size_bytes += size + len(chunk.rows) * INDEX_ENTRY.itemsize

    def tail(self, hour: int) -> HourTail | None:
        """The tail of an hour; breaks loose blocks up first."""
        if self._loose:
            self._break_up()
        return self._tails.get(hour)

    def parts(self, hour: int) -> list[tuple[RowArray, Block]]:
        """Rows of an hour as they lie, in any order, each part with the block its records are in.

        For who reads a whole tail: loose blocks stay whole.
        """
        tail = self._tails.get(hour)
        out = [] if tail is None else [(chunk.rows, chunk.data) for chunk in tail.chunks]
        for placed in self._loose:
            k = bisect_left(placed.hours, hour)
            if k < len(placed.hours) and placed.hours[k] == hour:
                out.append((placed.rows[placed.starts[k] : placed.starts[k + 1]], placed.data))
        return out + self._far.hour_parts(hour)

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
        return not self._tails and not self._loose and self._far.empty

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
        if merged:
            merged[0][1].extra_bytes = sum(_extra_bytes(placed) for placed in blocks)
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
            self._size_bytes = 0
        else:
            rows = sum(len(chunk.rows) for chunk in chunks)
            size = sum(int(chunk.rows["size"].sum()) + chunk.extra_bytes for chunk in chunks)
            self._size_bytes -= size + rows * INDEX_ENTRY.itemsize


def _extra_bytes(placed: PlacedRows) -> int:
    """Bytes of a frame besides its rows and their records, those of refused rows included."""
    return _OVERHEAD_BYTES + len(placed.data) - int(placed.rows["size"].sum())


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
    rows, hour = take_rows(rows, order), hour[order]
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
        extra = 0 if a else chunk.extra_bytes
        tail.chunks.append(TailChunk(first, part, chunk.data, False, chunk.position, extra))
    tail.chunks.sort(key=lambda c: c.first_index)
    tail.firsts = [c.first_index for c in tail.chunks]
