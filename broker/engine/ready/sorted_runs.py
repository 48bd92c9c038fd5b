"""Sorted runs of (first, second, ref) entries, in memory or in a scratch file, and their merge.

A list of runs is kept in the order of their age: of equal keys those of an earlier run came first,
so no entry carries its arrival and every merge takes neighbours only. All work is on whole arrays.
Runs know nothing of queues; what a full disk refuses stays in memory, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import TypeAlias

import numpy as np

from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.run_file import RunFile
from delaylog.storage.layout import Int64Array

Entries: TypeAlias = Int64Array
"""Shape (3, n): first keys, second keys, refs."""
Key: TypeAlias = tuple[int, int]

NO_ENTRIES: Entries = np.zeros((3, 0), np.int64)


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of a run is read at a time: at least so many entries of each, as far as it goes."""

    share_min: int
    """Entries of each run that a merge looks at."""
    read_min: int
    """Entries taken from a file at once: a read sums up whole blocks."""


def order_of(entries: Entries) -> Int64Array:
    """The stable order by (first, second).

    Keys and place are packed in one integer where they fit: sorting those is several times
    cheaper than sorting places by two columns. Columns too wide are replaced by their ranks.
    """
    count = entries.shape[1]
    place_bits = max(count - 1, 0).bit_length()
    if count < 2:
        return np.arange(count)
    if place_bits > 21:
        return np.lexsort((entries[1], entries[0]))
    first, first_bits = _from_zero(entries[0])
    second, second_bits = _from_zero(entries[1])
    if first_bits + second_bits + place_bits > 63:
        second, second_bits = _ranks(entries[1])
    if first_bits + second_bits + place_bits > 63:
        first, first_bits = _ranks(entries[0])
    packed = (((first << second_bits) | second) << place_bits) | np.arange(count)
    packed.sort()
    out: Int64Array = packed & ((1 << place_bits) - 1)
    return out


def _from_zero(column: Int64Array) -> tuple[Int64Array, int]:
    """A column less its least value, and the bits that takes; of use up to 63 bits only."""
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


def sort_entries(entries: Entries) -> Entries:
    """Entries in order; equal keys stay as they stood."""
    return np.take(entries, order_of(entries), axis=1)


def join(parts: Sequence[Entries]) -> Entries:
    """Entries one after another."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def key_at(entries: Entries, place: int) -> Key:
    """The two keys of one entry."""
    return int(entries[0, place]), int(entries[1, place])


def count_below(entries: Entries, key: Key, *, equal: bool) -> int:
    """How many of sorted entries are below a key, those equal to it counted or not."""
    first, second = entries[0], entries[1]
    low = int(first.searchsorted(key[0], "left"))
    high = int(first.searchsorted(key[0], "right"))
    return low + int(second[low:high].searchsorted(key[1], "right" if equal else "left"))


class SortedRun:
    """Entries in order: `head` in memory, then a file, then what is still to be merged into it."""

    def __init__(self, entries: Entries, sources: Sequence[SortedRun] = ()) -> None:
        """Sources are neighbours, oldest first, and above the entries."""
        self._head = entries
        self._file: RunFile | None = None
        self._behind = NO_ENTRIES
        """What a full disk kept out of the file: it comes after it."""
        self._sources = list(sources)
        self._count = int(entries.shape[1]) + sum(len(source) for source in sources)

    def __len__(self) -> int:
        return self._count

    @property
    def in_memory(self) -> bool:
        """Whether nothing of it is on disk, nor about to be."""
        return self._file is None and not self._sources and self._behind.shape[1] == 0

    @property
    def merged(self) -> bool:
        """Whether it is one run, not several that are being merged."""
        return not self._sources

    @property
    def entries(self) -> Entries:
        """All of a run in memory."""
        assert self.in_memory, "only a run in memory is looked at whole"
        return self._head

    @property
    def held(self) -> int:
        """Entries in memory."""
        inner = sum(source.held for source in self._sources)
        return int(self._head.shape[1] + self._behind.shape[1] + inner)

    @property
    def files(self) -> int:
        """Open files."""
        return (self._file is not None) + sum(source.files for source in self._sources)

    def write(self, make_run: Callable[[], RunFile]) -> None:
        """Put a run from memory into a file. Raises DiskFullError; then it is as it was."""
        assert self.in_memory, "a run is written once"
        file = make_run()
        try:
            file.push(_interleaved(self._head))
        except DiskFullError:
            file.close()
            raise
        self._file = file
        self._head = NO_ENTRIES

    def peek(self, count: int, reading: Reading) -> Entries:
        """The first entries, `count` of them; they stay. At most `len(self)` may be asked for."""
        assert count <= self._count, "a run has as many entries as it says"
        while self._head.shape[1] < count:
            self._head = join([self._head, self._next(count - self._head.shape[1], reading)])
        return self._head[:, :count]

    def _next(self, count: int, reading: Reading) -> Entries:
        """Entries behind the head, at least one; they are not here any more."""
        if self._file is not None and len(self._file):
            values = self._file.pop(3 * max(count, reading.read_min))
            if len(self._file) == 0 and not self._sources:
                self._close()
            return np.ascontiguousarray(values.reshape(-1, 3).T)
        if self._behind.shape[1]:
            entries, self._behind = self._behind, NO_ENTRIES
            return entries
        return self._merge(max(count, reading.read_min), reading)

    def _merge(self, count: int, reading: Reading) -> Entries:
        entries = take_lowest(self._sources, count, reading)
        self._sources = [source for source in self._sources if len(source)]
        return entries

    def drop(self, count: int) -> None:
        """Take off entries that were looked at."""
        assert count <= self._head.shape[1], "what was not looked at is not dropped"
        self._head = self._head[:, count:]
        self._count -= count
        if self._count == 0:
            self._close()

    def merge_some(self, count: int, reading: Reading, make_run: Callable[[], RunFile]) -> None:
        """Merge about so many entries of the sources into the file, unless the disk is full."""
        if self._behind.shape[1] == 0 and self._sources:
            self._behind = self._merge(count, reading)
        if self._file is None:
            self._file = make_run()
        try:
            self._file.push(_interleaved(self._behind))
        except DiskFullError:
            # About one step stays in memory until space returns; the sources are as good to read.
            return
        self._behind = NO_ENTRIES

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Remove the files."""
        self._close()
        for source in self._sources:
            source.close()


def _interleaved(entries: Entries) -> Int64Array:
    return np.ascontiguousarray(entries.T).reshape(-1)


def take_lowest(runs: Sequence[SortedRun], count: int, reading: Reading) -> Entries:
    """Take about `count` of the lowest entries (to twice as many), in order, if there are any.

    Of each run a block is looked at; the block with the lowest end is doubled until so many
    entries lie in blocks that were overtaken. The lowest end is then the cut: everything below it
    is in some block, and it is the last that is taken. No run changes unless all can be read.
    """
    blocks = []
    ends: list[tuple[Key, int]] = []
    for at, run in enumerate(runs):
        size = min(len(run), reading.share_min)
        blocks.append(run.peek(size, reading))
        if size < len(run):
            ends.append((key_at(blocks[at], -1), at))
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
            heapreplace(ends, (key_at(blocks[at], -1), at))
        else:
            heappop(ends)
    # Of equal keys the earliest run cuts: its others, behind the block, go before later ones.
    cut, cut_at = ends[0] if ends else (None, -1)
    parts = []
    for at, (run, block) in enumerate(zip(runs, blocks, strict=True)):
        if cut is not None and at != cut_at:
            if key_at(block, 0) > cut:
                continue
            block = block[:, : count_below(block, cut, equal=at < cut_at)]
        if block.shape[1]:
            parts.append(block)
            run.drop(block.shape[1])
    if not parts:
        return NO_ENTRIES
    return sort_entries(join(parts)) if len(parts) > 1 else parts[0]
