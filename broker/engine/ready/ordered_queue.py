"""A queue of refs ordered by rank: the lowest (first, second) goes out first, equals by arrival.

It has three parts, each with ranks at or above the part before it: a small sorted front, together
with urgent entries that came later and rank below its end; runs in memory, sorted when they are
first read; and runs on disk. With each push, runs of similar size are merged a little, so that
files stay few and no call is long. The queue contains hints, as FifoQueue does. Returned refs keep
their ranks.

Runs have (first, second, ref) entries, in memory or in a scratch file. They are listed by age: with
equal ranks, entries of an earlier run came first. So no entry needs an arrival number, and only
neighbours may be merged. All work is on whole arrays. Entries that a full disk refuses stay in
memory, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Final, TypeAlias

import numpy as np

from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import Int64Array

# ------------------------------------------------------------------ sorted runs and their merge

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


# ------------------------------------------------------------------------------------ the queue

# Refs that an ordered queue gave out and got back: they keep the ranks that they had.
#
# A caller of `pop` gets and returns refs only, so the queue remembers the ranks of the refs that it
# gave out last. A returned ref whose rank is not remembered goes before everything: it was popped
# before all that is here.

REMEMBERED_MAX: Final = 16_384
"""Entries remembered beyond the last pop: some rounds of one receive."""
_BEFORE_ALL: Final = np.iinfo(np.int64).min


class ReturnedRefs:
    """The returned entries, in order, and the entries that were popped last."""

    def __init__(self) -> None:
        self.entries: RankedRefs = NO_RANKED
        """With equal ranks they go before the entries of the queue."""
        self._popped: deque[RankedRefs] = deque()
        """Popped entries, the latest first."""
        self._popped_count = 0

    def __len__(self) -> int:
        return int(self.entries.shape[1])

    def remember(self, entries: RankedRefs) -> None:
        """Remember popped entries, which may be returned."""
        self._popped.appendleft(entries)
        self._popped_count += entries.shape[1]
        while len(self._popped) > 1 and self._popped_count > REMEMBERED_MAX:
            self._popped_count -= self._popped.pop().shape[1]

    def give_back(self, refs: Int64Array) -> None:
        """Take back popped refs, in the order they had; before equal ones of earlier calls."""
        back = np.full((3, len(refs)), _BEFORE_ALL)
        back[2] = refs
        if self._popped:
            popped = join(list(self._popped))
            # Stable: for a ref that was popped twice, the latest entry comes first.
            order = np.argsort(popped[2], kind="stable")
            found = np.searchsorted(popped[2], refs, sorter=order)
            found = order[np.minimum(found, len(order) - 1)]
            known = popped[2][found] == refs
            back[:2, known] = popped[:2, found[known]]
        self.entries = sort_ranked(join([back, self.entries]))

    def clear(self) -> None:
        """Forget everything."""
        self.entries = NO_RANKED
        self._popped.clear()
        self._popped_count = 0


HEAD_REFS_MAX: Final = 131_072
JOIN_REFS_MAX: Final = 64
"""Small pushes are joined up to this size, since an array has an overhead of 136 bytes."""
MERGE_RUNS: Final = 16
"""Neighbouring runs of similar size that are merged into one: a file is rewritten only
log16(entries / 65,536) times, and fewer than 16 runs of a size exist."""
MERGE_RATE: Final = 3
"""Entries merged on disk for each one pushed: fifty million need two, 800 million three. It is
raised while merges lag behind."""
MERGE_STEPS: Final = 2
"""Steps of 16,384 entries that one push takes at most (unless it is larger itself)."""
SPILL_GROUPS_MAX: Final = 2
"""Runs written to disk by one call."""


class OrderedQueue:
    """Lowest keys first."""

    def __init__(
        self,
        make_run: Callable[[], ScratchQueue],
        head_max: int = HEAD_REFS_MAX,
        *,
        merge_runs: int = MERGE_RUNS,
    ) -> None:
        self._make_run = make_run
        self._merge_runs = merge_runs
        self._runs_max = 4 * merge_runs
        """Runs on disk above which neighbours of any size are merged."""
        self._memory_max = max(head_max // 2, 2)
        """Entries in memory outside the front and outside the read-ahead of runs on disk."""
        self._front_size = max(head_max // 32, 1)
        self._urgent_max = max(head_max // 128, 1)
        self._step = max(head_max // 8, 16)
        self._reading = Reading(max(head_max // 2_048, 1), max(head_max // 128, 1))
        self._returned = ReturnedRefs()
        self._begin()

    def _begin(self) -> None:
        self._count = 0
        self._returned.clear()
        self._front = NO_RANKED
        self._cut: Rank | None = None
        """Ranks in the front are at or below it, ranks in the runs at or above it."""
        self._urgent = NO_RANKED
        self._urgent_parts: list[RankedRefs] = []
        self._urgent_count = 0
        self._runs: list[RankedRun] = []
        """With equal ranks, entries of an earlier run came earlier; `_pending` is the last run."""
        self._entries_in_runs = 0
        self._pending: list[RankedRefs] = []
        self._pending_count = 0
        self._spill_wait = 0
        """Pushes to wait for before a full disk is tried again."""
        self._merging: list[RankedRun] = []
        """Runs being merged, the smallest first, so that it does not wait for a large one."""
        self._merge_credit = 0

    def __len__(self) -> int:
        return self._count

    @property
    def in_memory_count(self) -> int:
        """Entries in memory."""
        runs = sum(run.in_memory_count for run in self._runs)
        front = self._front.shape[1] + self._urgent_count + len(self._returned)
        return int(front + self._pending_count + runs)

    @property
    def files(self) -> int:
        """Open files."""
        return sum(run.files for run in self._runs)

    def push(self, refs: Int64Array, first: Int64Array, second: Int64Array) -> None:
        """Insert refs by their ranks, behind those with equal ranks."""
        count = len(refs)
        if count == 0:
            return
        entries = np.empty((3, count), np.int64)
        entries[0] = first
        entries[1] = second
        entries[2] = refs
        self._count += count
        if self._cut is not None:
            below = entries[0] < self._cut[0]
            below |= (entries[0] == self._cut[0]) & (entries[1] < self._cut[1])
            urgent = int(np.count_nonzero(below))
            if urgent:
                self._urgent_parts.append(entries if urgent == count else entries[:, below])
                self._urgent_count += urgent
                entries = entries[:, ~below]
        if size := entries.shape[1]:
            if self._pending and self._pending[-1].shape[1] + size <= JOIN_REFS_MAX:
                self._pending[-1] = join([self._pending[-1], entries])
            else:
                self._pending.append(entries)
            self._pending_count += size
        if self._urgent_count > self._urgent_max:
            self._fold_urgent()
        self._spill_wait -= min(count, self._spill_wait)
        if self._pending_count + self._entries_in_runs > self._memory_max and not self._spill_wait:
            self._spill()
        if self._merging:
            self._merge_some(count)

    def push_front(self, refs: Int64Array) -> None:
        """Return popped refs: by their ranks, before those with equal ranks."""
        if len(refs):
            self._returned.give_back(refs)
            self._count += len(refs)

    def pop(self, count: int) -> Int64Array:
        """Take up to `count` refs."""
        count = self._reach(count)
        if count == 0:
            return np.zeros(0, np.int64)
        entries = self._pop_front(count)
        self._count -= count
        self._returned.remember(entries)
        # A copy: a lease that keeps the refs must not keep the ranks in memory.
        refs: Int64Array = entries[2].copy()
        return refs

    def pop_upto(self, first_max: int, count: int) -> Int64Array:
        """Take up to `count` refs whose first keys are at most `first_max`, for good."""
        count = self._reach(count)
        below = (int(part[0].searchsorted(first_max, "right")) for part in self._sorted_parts())
        count = min(count, sum(below))
        if count == 0:
            return np.zeros(0, np.int64)
        self._count -= count
        refs: Int64Array = self._pop_front(count)[2].copy()
        return refs

    @property
    def first(self) -> int | None:
        """The first key of what goes out next; None if the queue is empty."""
        self._reach(1)
        keys = (int(part[0, 0]) for part in self._sorted_parts() if part.shape[1])
        return min(keys, default=None)

    def in_memory(self) -> list[Int64Array]:
        """All refs in memory, which stay; of runs on disk those that were read ahead."""
        parts = [self._returned.entries, self._front, self._urgent]
        parts += [*self._urgent_parts, *self._pending]
        parts += [head for run in self._runs for head in run.heads()]
        return [part[2] for part in parts if part.shape[1]]

    def clear(self) -> None:
        """Drop everything."""
        for run in self._runs:
            run.close()
        self._begin()

    # ------------------------------------------------------------------ front

    def _reach(self, count: int) -> int:
        """Read on until up to `count` entries can be taken; returns how many there are."""
        count = min(count, self._count)
        if self._front.shape[1] + self._urgent_count < count:
            # Before anything is taken, since reading files may fail. The refill does not count
            # returned refs: these entries of the front are below all runs in any case.
            self._refill(count - self._urgent_count)
        return count

    def _sorted_parts(self) -> tuple[RankedRefs, RankedRefs, RankedRefs]:
        self._sort_urgent()
        return self._returned.entries, self._front, self._urgent

    def _pop_front(self, count: int) -> RankedRefs:
        """Take exactly `count` of the front's, the urgent and the returned entries."""
        # A copy: remembered entries must not keep the whole front in memory.
        out = self._front[:, :count].copy()
        counts = [0, count, 0]
        returned = self._returned.entries
        if self._urgent_count or returned.shape[1]:
            self._sort_urgent()
            # With equal ranks, returned entries go first and urgent ones last.
            parts = [returned[:, :count], out, self._urgent[:, :count]]
            both = join(parts)
            order = rank_order(both)[:count]
            out = both[:, order]
            ends = np.cumsum([part.shape[1] for part in parts])
            counts = np.diff(np.searchsorted(np.sort(order), ends), prepend=0).tolist()
        self._returned.entries = returned[:, counts[0] :]
        self._front = self._front[:, counts[1] :]
        self._urgent = self._urgent[:, counts[2] :]
        self._urgent_count -= counts[2]
        if self._front.shape[1] + self._urgent_count == 0:
            self._front, self._urgent, self._cut = NO_RANKED, NO_RANKED, None
        return out

    def _sort_urgent(self) -> None:
        if self._urgent_parts:
            self._urgent = sort_ranked(join([self._urgent, *self._urgent_parts]))
            self._urgent_parts.clear()

    def _fold_urgent(self) -> None:
        """Merge urgent entries into the front; the rest of a long front becomes the first run."""
        self._front = sort_ranked(join([self._front, self._urgent, *self._urgent_parts]))
        self._urgent = NO_RANKED
        self._urgent_parts.clear()
        self._urgent_count = 0
        if self._front.shape[1] > 2 * self._front_size:
            rest = self._front[:, self._front_size :]
            self._front = self._front[:, : self._front_size].copy()
            self._cut = rank_at(rest, 0)
            self._runs.insert(0, RankedRun(rest))
            self._join_runs()

    def _refill(self, count: int) -> None:
        """Extend the front to at least `count` entries, if there are as many."""
        self._sort_pending()
        while self._runs and (size := self._front.shape[1]) < count:
            # With more runs more is taken at once, since examining each run has a cost.
            block = max(count - size, self._front_size + 4 * self._reading.share_min * self.runs)
            taken = take_lowest(self._runs, block, self._reading)
            self._cut = rank_at(taken, -1)
            self._runs = [run for run in self._runs if len(run)]
            self._note_entries()
            self._front = join([self._front, taken]) if size else taken

    @property
    def runs(self) -> int:
        """Number of runs; runs that are being merged count as one."""
        return len(self._runs)

    # ------------------------------------------------------------------ runs

    def _note_entries(self) -> None:
        self._entries_in_runs = sum(len(run) for run in self._runs if run.in_memory)

    def _sort_pending(self) -> None:
        if self._pending:
            self._runs.append(RankedRun(sort_ranked(join(self._pending))))
            self._pending.clear()
            self._pending_count = 0
            self._join_runs()

    def _join_runs(self) -> None:
        """Join the two runs at each end while both are in memory and of similar size."""
        runs = self._runs
        while len(runs) > 1 and self._alike(outer=runs[-1], inner=runs[-2]):
            self._join_at(len(runs) - 2, 2)
        while len(runs) > 1 and self._alike(outer=runs[0], inner=runs[1]):
            self._join_at(0, 2)
        self._note_entries()

    def _alike(self, *, outer: RankedRun, inner: RankedRun) -> bool:
        if not (outer.in_memory and inner.in_memory):
            return False
        return 2 * len(outer) >= len(inner) and len(outer) + len(inner) <= self._memory_max

    def _join_at(self, at: int, count: int) -> RankedRun:
        joined = RankedRun(sort_ranked(join([r.entries for r in self._runs[at : at + count]])))
        self._runs[at : at + count] = [joined]
        return joined

    def _spill(self) -> None:
        """Write runs from memory to disk, the largest sequence of neighbours first."""
        if self._entries_in_runs <= self._memory_max // 2:
            # Sorting and writing happen in two calls, to keep each short.
            self._sort_pending()
            return
        for _ in range(SPILL_GROUPS_MAX):
            if self._entries_in_runs <= self._memory_max // 2:
                break
            at, count = self._largest_stretch()
            run = self._runs[at] if count == 1 else self._join_at(at, count)
            try:
                run.write(self._make_run)
            except DiskFullError:
                # 24 bytes a message stay in memory until space returns; deliveries go on.
                self._spill_wait = self._memory_max // 4
                break
            self._note_entries()
        self._plan_merges()

    def _largest_stretch(self) -> tuple[int, int]:
        """(at, count) of the neighbours in memory with most entries, up to a size limit."""
        best, best_size = (0, 0), 0
        at, size = 0, 0
        for end, run in enumerate(self._runs):
            if not run.in_memory:
                at, size = end + 1, 0
                continue
            if size + len(run) > 2 * self._memory_max:
                at, size = end, 0
            size += len(run)
            if size > best_size:
                best, best_size = (at, end + 1 - at), size
        assert best_size > 0, "entries in memory are in runs"
        return best

    # ------------------------------------------------------------------ merging on disk

    def _plan_merges(self) -> None:
        """Choose neighbouring runs on disk to merge."""
        fan = self._merge_runs
        while (at := self._window()) is not None:
            run = RankedRun(NO_RANKED, self._runs[at : at + fan])
            self._runs[at : at + fan] = [run]
            self._merging.append(run)
            self._merging.sort(key=len)

    def _window(self) -> int | None:
        """Index of the smallest window of neighbours of one size; of any size if there are many."""
        fan = self._merge_runs
        levels = [
            -1 if run.in_memory or not run.merged else self._level(len(run)) for run in self._runs
        ]
        many = len(levels) - levels.count(-1) > self._runs_max
        best: tuple[int, int, int] | None = None
        for at in range(len(levels) - fan + 1):
            low, high = min(levels[at : at + fan]), max(levels[at : at + fan])
            if low < 0 or (low < high and not many):
                continue
            found = (high, sum(len(run) for run in self._runs[at : at + fan]), at)
            best = found if best is None else min(best, found)
        return None if best is None else best[2]

    def _level(self, size: int) -> int:
        level = 0
        while size >= self._memory_max * self._merge_runs // 2:
            size //= self._merge_runs
            level += 1
        return level

    def _merge_some(self, count: int) -> None:
        """Continue merges, in proportion to the number of entries pushed."""
        self._merge_credit += (MERGE_RATE + len(self._runs) // self._merge_runs) * count
        steps = max(MERGE_STEPS, MERGE_STEPS * count // self._step)
        while self._merge_credit >= self._step and self._merging and steps:
            run = self._merging[0]
            if run.merged:
                self._merging.pop(0)
                self._plan_merges()
                continue
            self._merge_credit -= self._step
            steps -= 1
            run.merge_some(self._step, self._reading, self._make_run)
        if not self._merging:
            self._merge_credit = 0
