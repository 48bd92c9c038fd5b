"""Sorted runs of (first, second, ref) entries, in memory or in a scratch file, and their merge.

Runs are listed by age: with equal ranks, entries of an earlier run came first. So no entry needs an
arrival number, and only neighbours may be merged. All work is on whole arrays. Entries that a full
disk refuses stay in memory, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import TypeAlias

import numpy as np

from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import Int64Array

RankedRefs: TypeAlias = Int64Array
"""Shape (3, n): first sort keys, second sort keys, refs."""
Rank: TypeAlias = tuple[int, int]

NO_RANKED: RankedRefs = np.zeros((3, 0), np.int64)


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of a run is read at a time."""

    share_min: int
    """Entries of each run that a merge examines first, at least."""
    read_min: int
    """Entries read from a file at once, at least: a read verifies whole blocks."""


def rank_order(entries: RankedRefs) -> Int64Array:
    """The stable order by (first, second).

    Both keys and the index of an entry are packed into one integer if they fit: sorting these
    integers is several times cheaper than an argsort by two columns. Columns that are too wide are
    replaced by their ranks.
    """
    count = entries.shape[1]
    arrival_bits = max(count - 1, 0).bit_length()
    if count < 2:
        return np.arange(count)
    if arrival_bits > 21:
        return np.lexsort((entries[1], entries[0]))
    first, first_bits = _from_zero(entries[0])
    second, second_bits = _from_zero(entries[1])
    if first_bits + second_bits + arrival_bits > 63:
        second, second_bits = _ranks(entries[1])
    if first_bits + second_bits + arrival_bits > 63:
        first, first_bits = _ranks(entries[0])
    packed = (((first << second_bits) | second) << arrival_bits) | np.arange(count)
    packed.sort()
    out: Int64Array = packed & ((1 << arrival_bits) - 1)
    return out


def _from_zero(column: Int64Array) -> tuple[Int64Array, int]:
    """A column minus its least value, and its width in bits; unchanged if above 63 bits."""
    low = int(column.min())
    bits = (int(column.max()) - low).bit_length()
    return (column - low if bits <= 63 else column), bits


def _ranks(column: Int64Array) -> tuple[Int64Array, int]:
    order = np.argsort(column)
    ordered = column[order]
    ranks = np.empty(len(column), np.int64)
    steps = np.cumsum(ordered[1:] != ordered[:-1])
    ranks[order[0]] = 0
    ranks[order[1:]] = steps
    return ranks, int(steps[-1]).bit_length()


def sort_ranked(entries: RankedRefs) -> RankedRefs:
    """Entries in order of rank; equal ranks keep their order."""
    return np.take(entries, rank_order(entries), axis=1)


def join(parts: Sequence[RankedRefs]) -> RankedRefs:
    """Concatenate entries."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def rank_at(entries: RankedRefs, at: int) -> Rank:
    """The rank of one entry."""
    return int(entries[0, at]), int(entries[1, at])


def count_below(entries: RankedRefs, key: Rank, *, equal: bool) -> int:
    """How many of sorted entries rank below a key, or with `equal` at or below it."""
    first, second = entries[0], entries[1]
    low = int(first.searchsorted(key[0], "left"))
    high = int(first.searchsorted(key[0], "right"))
    return low + int(second[low:high].searchsorted(key[1], "right" if equal else "left"))


class RankedRun:
    """Entries in order: a head in memory, then a file, then sources still to be merged into it."""

    def __init__(self, entries: RankedRefs, sources: Sequence[RankedRun] = ()) -> None:
        """`sources` are neighbours, oldest first, and rank above `entries`."""
        self._head = entries
        self._file: ScratchQueue | None = None
        self._behind = NO_RANKED
        """Entries behind the file that a full disk has not taken yet."""
        self._sources = list(sources)
        self._count = int(entries.shape[1]) + sum(len(source) for source in sources)

    def __len__(self) -> int:
        return self._count

    @property
    def in_memory(self) -> bool:
        """Whether all entries are in the head: none is on disk, and none is still to be merged."""
        return self._file is None and not self._sources and self._behind.shape[1] == 0

    @property
    def merged(self) -> bool:
        """Whether no sources are left to merge."""
        return not self._sources

    @property
    def entries(self) -> RankedRefs:
        """All entries of a run in memory."""
        assert self.in_memory, "a run on disk is not read as a whole"
        return self._head

    @property
    def in_memory_count(self) -> int:
        """Entries in memory."""
        inner = sum(source.in_memory_count for source in self._sources)
        return int(self._head.shape[1] + self._behind.shape[1] + inner)

    def heads(self) -> Iterator[RankedRefs]:
        """The entries in memory, of sources too."""
        yield self._head
        yield self._behind
        for source in self._sources:
            yield from source.heads()

    @property
    def files(self) -> int:
        """Open files."""
        return (self._file is not None) + sum(source.files for source in self._sources)

    def write(self, make_run: Callable[[], ScratchQueue]) -> None:
        """Move a run from memory to a file. Raises DiskFullError; then nothing has changed."""
        assert self.in_memory, "a run is written once"
        file = make_run()
        try:
            file.push(_interleaved(self._head))
        except DiskFullError:
            file.close()
            raise
        self._file = file
        self._head = NO_RANKED

    def peek(self, count: int, reading: Reading) -> RankedRefs:
        """The first `count` entries, at most `len(self)`, without removing them."""
        assert count <= self._count, "no more than there are"
        while self._head.shape[1] < count:
            self._head = join([self._head, self._next(count - self._head.shape[1], reading)])
        return self._head[:, :count]

    def _next(self, count: int, reading: Reading) -> RankedRefs:
        """Remove and return entries behind the head, at least one."""
        if self._file is not None and len(self._file):
            values = self._file.pop(3 * max(count, reading.read_min))
            if len(self._file) == 0 and not self._sources:
                self._close()
            return np.ascontiguousarray(values.reshape(-1, 3).T)
        if self._behind.shape[1]:
            entries, self._behind = self._behind, NO_RANKED
            return entries
        return self._merge(max(count, reading.read_min), reading)

    def _merge(self, count: int, reading: Reading) -> RankedRefs:
        entries = take_lowest(self._sources, count, reading)
        self._sources = [source for source in self._sources if len(source)]
        return entries

    def drop(self, count: int) -> None:
        """Remove the first entries, which `peek` has returned."""
        assert count <= self._head.shape[1], "only entries that `peek` returned"
        self._head = self._head[:, count:]
        self._count -= count
        if self._count == 0:
            self._close()

    def merge_some(
        self, count: int, reading: Reading, make_run: Callable[[], ScratchQueue]
    ) -> None:
        """Merge about `count` entries of the sources into the file, unless the disk is full."""
        if self._behind.shape[1] == 0 and self._sources:
            self._behind = self._merge(count, reading)
        if self._file is None:
            self._file = make_run()
        try:
            self._file.push(_interleaved(self._behind))
        except DiskFullError:
            # About one step stays in memory until space returns; sources can be read meanwhile.
            return
        self._behind = NO_RANKED

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Remove the files."""
        self._close()
        for source in self._sources:
            source.close()


def _interleaved(entries: RankedRefs) -> Int64Array:
    return np.ascontiguousarray(entries.T).reshape(-1)


def take_lowest(runs: Sequence[RankedRun], count: int, reading: Reading) -> RankedRefs:
    """Remove and return the lowest entries in order: about `count`, at most twice as many.

    A block of each run is examined. The block with the lowest end is doubled until about `count`
    entries lie below the lowest end. That end is the cut: every entry below it is in some block,
    and it is the last one taken. No run changes unless all blocks could be read.
    """
    blocks = []
    ends: list[tuple[Rank, int]] = []
    for at, run in enumerate(runs):
        size = min(len(run), reading.share_min)
        blocks.append(run.peek(size, reading))
        if size < len(run):
            ends.append((rank_at(blocks[at], -1), at))
    heapify(ends)
    overtaken = [0] * len(runs)
    while ends and count > 0:
        at = ends[0][1]
        size = blocks[at].shape[1]
        count -= size - overtaken[at]
        if count <= 0:
            break
        overtaken[at] = size
        size = min(2 * size, len(runs[at]))
        blocks[at] = runs[at].peek(size, reading)
        if size < len(runs[at]):
            heapreplace(ends, (rank_at(blocks[at], -1), at))
        else:
            heappop(ends)
    # With equal ends the earliest run cuts: its further entries go before those of later runs.
    cut, cut_at = ends[0] if ends else (None, -1)
    parts = []
    for at, (run, block) in enumerate(zip(runs, blocks, strict=True)):
        if cut is not None and at != cut_at:
            if rank_at(block, 0) > cut:
                continue
            block = block[:, : count_below(block, cut, equal=at < cut_at)]
        if block.shape[1]:
            parts.append(block)
            run.drop(block.shape[1])
    if not parts:
        return NO_RANKED
    return sort_ranked(join(parts)) if len(parts) > 1 else parts[0]
