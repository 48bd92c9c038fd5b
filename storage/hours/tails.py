"""Tails: rows that are applied but not yet in files, near hours by hour and far hours by run.

A frame whose rows fall into few hours becomes one chunk per hour (`HourTail`). A frame with few
rows in each of many hours stays one loose block of `TailPile`, so that its rows cost nothing until
the splitter sorts all loose blocks at once; a look-up into an hour first splits them into chunks.
Look-ups find rows here until their hour has taken over the flushed ones.

Rows of far hours wait in `FarPile` for the next run of the far tier. They are kept as blocks sorted
by (hour, row number). Small neighbouring blocks are merged, each row at most five times, so a
look-up searches few blocks whether frames had one row or a thousand each.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns import (
    Mask,
    concat_rows,
    distinct,
    every,
    gather,
    put_rows,
    rising,
    scatter_back,
    some,
    take_rows,
)
from delaylog.storage.hours.far.sorted_run import RunRows, hour_key
from delaylog.storage.layout import (
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_MASK,
    Int64Array,
    RowArray,
)
from delaylog.storage.messages.batch import Block
from delaylog.storage.messages.rows import FewRows, PlacedRows

# ------------------------------------------------------------------------- the tail of one hour

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


# ---------------------------------------------------------------------------- rows of far hours

_FAN_IN: Final = 8
"""Blocks of one level that are merged into one."""
_MERGED_ROWS_MAX: Final = 8_192
_MERGED_BYTES_MAX: Final = 1 << 20
"""Blocks are merged up to this size: about 2 ms of copying."""
_SAMPLED: Final = 64
"""Every 64th key is sampled to choose where a large pile is cut."""


@dataclass(slots=True, eq=False)
class FarBlock:
    """Rows in key order; `offset` of a row points into `data`."""

    keys: Int64Array
    rows: RowArray
    data: Block
    positions: Int64Array
    """The position of each row's frame."""
    level: int = 0
    """How often its rows were merged."""
    frozen: bool = False
    """A flush is writing the block: it must not be merged with others."""

    @property
    def size_bytes(self) -> int:
        return int(self.rows["size"].sum(dtype=np.int64)) + len(self.rows) * (INDEX_ENTRY_SIZE + 16)

    def part(self, mask: npt.NDArray[np.bool_]) -> FarBlock:
        """The rows of a mask, with the same data."""
        rows = take_rows(self.rows, mask)
        return FarBlock(self.keys[mask], rows, self.data, self.positions[mask], self.level)

    def span(self, hour: int) -> slice:
        """Where the rows of an hour are."""
        a, b = np.searchsorted(self.keys, [hour_key(hour), hour_key(hour + 1)]).tolist()
        return slice(a, b)


class FarPile:
    """All blocks, oldest first."""

    def __init__(self) -> None:
        self._blocks: list[FarBlock] = []
        self.size_bytes = 0

    @property
    def empty(self) -> bool:
        """No row waits."""
        return not self._blocks

    def add(self, hours: Int64Array, rows: RowArray, data: Block, position: int) -> None:
        """Add the rows of one frame, ordered by (hour, row number); `hours` = that of each row."""
        keys = hours << INDEX_BITS | rows["global_index"].astype(np.int64)
        block = FarBlock(keys, rows, data, np.full(len(rows), position, np.int64))
        self.size_bytes += block.size_bytes
        self._blocks.append(block)
        while self._merge_newest():
            pass

    def _merge_newest(self) -> bool:
        """Merge the newest blocks if enough are of one level; return whether all fitted in one."""
        newest = self._blocks[-_FAN_IN:]
        level = newest[-1].level
        if len(newest) < _FAN_IN or any(one.level != level or one.frozen for one in newest):
            return False
        fit = _fitting(newest)
        if fit > 1:
            self._blocks[-_FAN_IN : len(self._blocks) - _FAN_IN + fit] = [_merged(newest[:fit])]
        return fit == _FAN_IN

    # ------------------------------------------------------------------ look-ups

    def fill_rows(self, out: RowArray, left: Int64Array, keys: Int64Array) -> Int64Array:
        """Put the rows found here into `out`; return the places that are still missing."""
        for block in self._blocks:
            if len(left) == 0:
                break
            at, here = _find(block, keys[left])
            if some(here):
                put_rows(out, left[here], take_rows(block.rows, at[here]))
                left = left[~here]
        return left

    def fill_records(
        self,
        parts: list[tuple[Int64Array, bytes]],
        left: Int64Array,
        keys: Int64Array,
        rows: RowArray,
    ) -> Int64Array:
        """Append (places, their records) of rows found here; return the places still missing."""
        for block in self._blocks:
            if len(left) == 0:
                break
            _, here = _find(block, keys[left])
            if some(here):
                mine = left[here]
                starts, sizes = rows["offset"][mine].astype(np.int64), rows["size"][mine]
                parts.append((mine, gather(block.data, starts, sizes.astype(np.int64))))
                left = left[~here]
        return left

    def hour_parts(self, hour: int) -> list[tuple[RowArray, Block]]:
        """Rows of an hour as views of the blocks, each part with the data that has its records."""
        out = []
        for block in self._blocks:
            span = block.span(hour)
            if span.start < span.stop:
                out.append((block.rows[span], block.data))
        return out

    def first_index(self, hour: int) -> int | None:
        """The least row number here of an hour, or None."""
        for block in self._blocks:
            span = block.span(hour)
            if span.start < span.stop:
                return int(block.rows["global_index"][span.start])
        return None

    # ------------------------------------------------------------------ leaving

    def take(self, upto: int) -> list[FarBlock]:
        """Blocks of frames below position `upto`; they stay here until `drop`."""
        out: list[FarBlock] = []
        blocks: list[FarBlock] = []
        for block in self._blocks:
            below = block.positions < upto
            parts = [block]
            if some(below) and not every(below):
                parts = [block.part(below), block.part(~below)]
            blocks += parts
            if some(below):
                parts[0].frozen = True
                out.append(parts[0])
        self._blocks = blocks
        return out

    def drop(self, blocks: list[FarBlock]) -> None:
        """Remove blocks that are in a run now."""
        gone = {id(block) for block in blocks}
        self._blocks = [block for block in self._blocks if id(block) not in gone]
        self.size_bytes -= sum(block.size_bytes for block in blocks)

    def thaw(self, blocks: list[FarBlock]) -> None:
        """After a failed flush: make its blocks ordinary ones again, and merge small neighbours."""
        for block in blocks:
            block.frozen = False
        left, self._blocks = self._blocks, []
        while left:
            fit = max(_fitting(left[: _FAN_IN**2]), 1)
            self._blocks.append(_merged(left[:fit]) if fit > 1 else left[0])
            left = left[fit:]

    def pop_hour(self, hour: int) -> list[TailChunk]:
        """Take the rows of an hour out, as chunks of its tail. No flush may be under way."""
        chunks: list[TailChunk] = []
        blocks: list[FarBlock] = []
        for block in self._blocks:
            span = block.span(hour)
            if span.start < span.stop:
                assert not block.frozen, "no flush is under way"
                mask = np.zeros(len(block.keys), np.bool_)
                mask[span] = True
                mine = block.part(mask)
                self.size_bytes -= mine.size_bytes
                chunks += _chunks(mine)
                block = block.part(~mask)
            if len(block.keys):
                blocks.append(block)
        self._blocks = blocks
        return sorted(chunks, key=lambda chunk: chunk.first_index)


def key_cuts(blocks: list[FarBlock], part_bytes: int) -> list[tuple[int, int]]:
    """Ranges of keys, [first, end), each with about `part_bytes` of `blocks`."""
    parts = -(-sum(block.size_bytes for block in blocks) // part_bytes)
    # A sample that contains the least key of each block.
    keys = np.sort(np.concatenate([block.keys[::_SAMPLED] for block in blocks]))
    bounds = [int(keys[len(keys) * k // parts]) for k in range(parts)]
    end = max(int(block.keys[-1]) for block in blocks) + 1
    return list(itertools.pairwise([*dict.fromkeys(bounds), end]))


def sorted_part(blocks: list[FarBlock], first_key: int, end_key: int) -> RunRows:
    """The rows with keys in [first, end) by key, and their records in that order. Any thread."""
    parts = []
    for block in blocks:
        a, b = np.searchsorted(block.keys, [first_key, end_key]).tolist()
        if a < b:
            parts.append((block, slice(a, b)))
    keys = np.concatenate([block.keys[span] for block, span in parts])
    rows = concat_rows([block.rows[span] for block, span in parts])
    records = b"".join([_records(block, span) for block, span in parts])
    sizes = rows["size"].astype(np.int64)
    # Rows of one hour are in order already, as where all messages have the same delay.
    if some(keys[1:] < keys[:-1]):
        order = np.argsort(keys, kind="stable")
        starts = np.cumsum(sizes) - sizes
        keys, rows, sizes = keys[order], take_rows(rows, order), sizes[order]
        records = gather(records, starts[order], sizes)
    rows["offset"] = np.cumsum(sizes) - sizes
    return RunRows(keys, rows, records)


def _records(block: FarBlock, span: slice) -> bytes:
    rows = block.rows[span]
    return gather(block.data, rows["offset"].astype(np.int64), rows["size"].astype(np.int64))


def _merged(blocks: list[FarBlock]) -> FarBlock:
    rows = concat_rows([block.rows for block in blocks])
    lengths = [len(block.rows) for block in blocks]
    bases = np.cumsum([0, *(len(block.data) for block in blocks)])[:-1]
    rows["offset"] += np.repeat(bases, lengths).astype(np.uint64)
    keys = np.concatenate([block.keys for block in blocks])
    positions = np.concatenate([block.positions for block in blocks])
    if some(keys[1:] < keys[:-1]):
        order = np.argsort(keys, kind="stable")
        keys, rows, positions = keys[order], take_rows(rows, order), positions[order]
    data = b"".join([block.data for block in blocks])
    return FarBlock(keys, rows, data, positions, level=blocks[-1].level + 1)


def _fitting(blocks: list[FarBlock]) -> int:
    """How many of these blocks, from the first on, fit into one."""
    rows = itertools.accumulate(len(one.keys) for one in blocks)
    size = itertools.accumulate(len(one.data) for one in blocks)
    return sum(
        n <= _MERGED_ROWS_MAX and m <= _MERGED_BYTES_MAX for n, m in zip(rows, size, strict=True)
    )


def _find(block: FarBlock, keys: Int64Array) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    at = np.searchsorted(block.keys, keys)
    at[at == len(block.keys)] = 0
    here: npt.NDArray[np.bool_] = block.keys[at] == keys
    return at, here


def _chunks(block: FarBlock) -> list[TailChunk]:
    """Rows of one hour as chunks, one for each frame."""
    cuts = (np.flatnonzero(block.positions[1:] != block.positions[:-1]) + 1).tolist()
    bounds = [0, *cuts, len(block.keys)]
    return [
        TailChunk(
            int(block.rows["global_index"][a]),
            block.rows[a:b],
            block.data,
            False,
            int(block.positions[a]),
        )
        for a, b in itertools.pairwise(bounds)
    ]


# ------------------------------------------------------------------------------------ all tails

TAIL_BYTES_MAX: Final = 28 << 20
"""Rows and bodies in memory before the splitter takes them to their hours."""
_ROWS_PER_HOUR_MIN: Final = 64
_DIRECT_HOURS_MAX: Final = 4
_OVERHEAD_BYTES: Final = 400


class TailPile:
    """All tails and loose blocks, and the memory that they take."""

    def __init__(self, far: FarPile) -> None:
        """`far` = rows of far hours that are not in runs yet."""
        self._far = far
        self._tails: dict[int, HourTail] = {}
        self._loose: list[PlacedRows] = []
        self._size_bytes = 0
        self.bytes_max = TAIL_BYTES_MAX

    @property
    def size_bytes(self) -> int:
        """Memory of all rows and records that are not in files yet."""
        return self._size_bytes + self._far.size_bytes

    def add(self, placed: PlacedRows) -> None:
        """Add numbered rows; they are visible at once."""
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

    def add_few(self, few: FewRows) -> None:
        """Add numbered rows of one near hour."""
        hour, data, raw = few.hours[0], few.data, few.raw
        self._size_bytes += len(data) + len(raw) + _OVERHEAD_BYTES
        tail = self._tails.get(hour)
        if tail is None:
            tail = self._tails[hour] = HourTail()
        rows, first = np.frombuffer(raw, INDEX_ENTRY), few.refs[0] & INDEX_MASK
        view = memoryview(raw)
        tail.add(TailChunk(first, rows, data, True, few.position, _OVERHEAD_BYTES, view))

    def add_mixed(self, placed: PlacedRows, near: int, far: Mask) -> None:
        """As `add`; of the hours from number `near` on, those of the mask `far` are far ones."""
        if near:
            self.add(placed.part(0, near))
        lengths = np.diff(placed.starts[near:])
        hours = np.repeat(np.array(placed.hours[near:], np.int64), lengths)
        rows = placed.rows[placed.starts[near] :]
        if not every(far):
            for k in np.flatnonzero(~far).tolist():
                self.add(placed.part(near + k, near + k + 1))
            mask = np.repeat(far, lengths)
            hours, rows = hours[mask], take_rows(rows, mask)
        if len(rows):
            self._far.add(hours, rows, placed.data, placed.position)

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
        """Add the rows of an hour that is no longer a far one."""
        for chunk in chunks:
            self._tails.setdefault(hour, HourTail()).add(chunk)
            size = int(chunk.rows["size"].sum(dtype=np.int64))
            self._size_bytes += size + len(chunk.rows) * INDEX_ENTRY.itemsize

    def tail(self, hour: int) -> HourTail | None:
        """The tail of an hour, after splitting loose blocks into chunks."""
        if self._loose:
            self._break_up()
        return self._tails.get(hour)

    def parts(self, hour: int) -> list[tuple[RowArray, Block]]:
        """All unflushed rows of an hour in any order, each part with the block of its records.

        Loose blocks are not split.
        """
        tail = self._tails.get(hour)
        out = [] if tail is None else [(chunk.rows, chunk.data) for chunk in tail.chunks]
        for placed in self._loose:
            k = bisect_left(placed.hours, hour)
            if k < len(placed.hours) and placed.hours[k] == hour:
                out.append((placed.rows[placed.starts[k] : placed.starts[k + 1]], placed.data))
        return out + self._far.hour_parts(hour)

    def _break_up(self) -> None:
        """Split every loose block into chunks of its hours."""
        loose, self._loose = self._loose, []
        for placed in loose:
            self._add_chunks(placed)
        for tail in self._tails.values():
            if any(a > b for a, b in itertools.pairwise(tail.firsts)):
                tail.chunks.sort(key=lambda chunk: chunk.first_index)
                tail.firsts = [chunk.first_index for chunk in tail.chunks]

    @property
    def has_loose(self) -> bool:
        """Whether there are loose blocks."""
        return bool(self._loose)

    @property
    def empty(self) -> bool:
        """Whether no row waits to be flushed."""
        return not self._tails and not self._loose and self._far.empty

    def take(self, *, upto: int, hour: int | None = None) -> list[tuple[int, list[TailChunk]]]:
        """Chunks of frames below position `upto`, per hour; they stay here until `drop`.

        With `hour`, only that hour's. Loose blocks that were not merged are split into chunks.
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
        """Loose blocks of frames below `upto`, to be sorted by `sort_loose` on any thread."""
        return [placed for placed in self._loose if placed.position < upto]

    def end_merge(self, blocks: list[PlacedRows], merged: list[tuple[int, TailChunk]]) -> None:
        """Replace loose blocks by their sorted chunks, unless a look-up has split the blocks."""
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
    """Bytes of a frame in addition to its rows and records; includes records of refused rows."""
    return _OVERHEAD_BYTES + len(placed.data) - int(placed.rows["size"].sum())


def sort_loose(blocks: list[PlacedRows]) -> list[tuple[int, TailChunk]]:
    """All rows of loose blocks sorted by (hour, index), as one chunk for each hour.

    It runs on a worker, since a full pile takes a tenth of a second. The blocks do not change.
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
