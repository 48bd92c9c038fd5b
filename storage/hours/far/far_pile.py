"""Rows of far hours that wait in memory for the next run of the far tier.

They are kept as blocks sorted by (hour, row number). Small neighbouring blocks are merged, each row
at most five times, so a look-up searches few blocks whether frames had one row or a thousand each.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns.gather import gather
from delaylog.storage.columns.questions import every, some
from delaylog.storage.columns.whole_rows import concat_rows, put_rows, take_rows
from delaylog.storage.hours.far.sorted_run import RunRows, hour_key
from delaylog.storage.hours.hour_tail import TailChunk
from delaylog.storage.layout import INDEX_BITS, INDEX_ENTRY_SIZE, Int64Array, RowArray
from delaylog.storage.messages.batch import Block

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
