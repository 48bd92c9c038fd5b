"""Ready queue ordered by two keys: the lowest (first, second) goes out first, equals by arrival.

Three places, each at or above the one before it: a small sorted front with the urgent entries
that came below its end; runs, sorted when they are first looked at; runs on disk beyond a bound.
Runs of like size are merged a little with each push, so files stay few and no call is long.
The queue holds hints, as ReadyQueue does; refs given back take the places they had.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from delaylog.broker.engine.ready.given_back import GivenBack
from delaylog.broker.engine.ready.sorted_runs import (
    NO_ENTRIES,
    Entries,
    Key,
    Reading,
    SortedRun,
    join,
    key_at,
    order_of,
    sort_entries,
    take_lowest,
)
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.run_file import RunFile
from delaylog.storage.layout import Int64Array

HEAD_REFS_MAX: Final = 131_072
MERGE_RUNS: Final = 16
"""So many neighbours of like size become one run: a file is read and written again only
log16(entries / 65,536) times, and fewer than 16 runs of a size wait."""
MERGE_RATE: Final = 3
"""Entries merged on disk for each one pushed: fifty million need two, 800 million three. Where
runs wait all the same, it is more."""
MERGE_STEPS: Final = 2
"""Steps of 16,384 entries that one push takes at most (unless it is larger itself)."""
SPILL_GROUPS_MAX: Final = 2
"""Runs written to disk by one call."""


class OrderedQueue:
    """Lowest keys first."""

    def __init__(
        self,
        make_run: Callable[[], RunFile],
        head_max: int = HEAD_REFS_MAX,
        *,
        merge_runs: int = MERGE_RUNS,
    ) -> None:
        self._make_run = make_run
        self._merge_runs = merge_runs
        self._runs_max = 4 * merge_runs
        """Above so many runs on disk neighbours of any size are merged."""
        self._held_max = max(head_max // 2, 2)
        """Entries in memory outside the front and outside the read-ahead of runs on disk."""
        self._front_size = max(head_max // 32, 1)
        self._urgent_max = max(head_max // 128, 1)
        self._step = max(head_max // 8, 16)
        self._reading = Reading(max(head_max // 2_048, 1), max(head_max // 128, 1))
        self._returned = GivenBack()
        self._begin()

    def _begin(self) -> None:
        self._count = 0
        self._returned.clear()
        self._front = NO_ENTRIES
        self._cut: Key | None = None
        """Everything in the front is at it or below, everything in the runs at it or above."""
        self._urgent = NO_ENTRIES
        self._urgent_parts: list[Entries] = []
        self._urgent_count = 0
        self._runs: list[SortedRun] = []
        """Of equal keys, those of an earlier run came earlier; `_pending` is the last."""
        self._held = 0
        self._pending: list[Entries] = []
        self._pending_count = 0
        self._spill_wait = 0
        """Entries still to be pushed before a full disk is tried again."""
        self._merging: list[SortedRun] = []
        """The smallest first: it does not wait for a large one."""
        self._merge_credit = 0

    def __len__(self) -> int:
        return self._count

    @property
    def held(self) -> int:
        """Entries in memory."""
        runs = sum(run.held for run in self._runs)
        front = self._front.shape[1] + self._urgent_count + len(self._returned)
        return int(front + self._pending_count + runs)

    @property
    def files(self) -> int:
        """Open files."""
        return sum(run.files for run in self._runs)

    def push(self, refs: Int64Array, first: Int64Array, second: Int64Array) -> None:
        """Put refs in by their keys, behind those with equal keys."""
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
        if entries.shape[1]:
            self._pending.append(entries)
            self._pending_count += entries.shape[1]
        if self._urgent_count > self._urgent_max:
            self._fold_urgent()
        self._spill_wait -= min(count, self._spill_wait)
        if self._pending_count + self._held > self._held_max and not self._spill_wait:
            self._spill()
        if self._merging:
            self._merge_some(count)

    def push_front(self, refs: Int64Array) -> None:
        """Give back what `pop` gave: by their keys, before those with equal keys."""
        if len(refs):
            self._returned.give_back(refs)
            self._count += len(refs)

    def pop(self, count: int) -> Int64Array:
        """Take up to `count` refs."""
        count = min(count, self._count)
        if self._front.shape[1] + self._urgent_count < count:
            # First of all, as it reads files: if that fails, nothing has been taken. Whatever was
            # given back, so many of the front are below all runs.
            self._refill(count - self._urgent_count)
        if count == 0:
            return np.zeros(0, np.int64)
        entries = self._pop_front(count)
        self._count -= count
        self._returned.lend(entries)
        # A copy: a lease that keeps it must not keep the keys.
        refs: Int64Array = entries[2].copy()
        return refs

    def clear(self) -> None:
        """Drop everything."""
        for run in self._runs:
            run.close()
        self._begin()

    # ------------------------------------------------------------------ front

    def _pop_front(self, count: int) -> Entries:
        """Exactly `count` entries, which front, urgent ones and those given back hold together."""
        # A copy: what is remembered of it must not keep the whole front.
        out = self._front[:, :count].copy()
        counts = [0, count, 0]
        returned = self._returned.entries
        if self._urgent_count or returned.shape[1]:
            self._sort_urgent()
            # Equal keys: what was given back came first, and an urgent entry after the front's.
            parts = [returned[:, :count], out, self._urgent[:, :count]]
            both = join(parts)
            order = order_of(both)[:count]
            out = both[:, order]
            ends = np.cumsum([part.shape[1] for part in parts])
            counts = np.diff(np.searchsorted(np.sort(order), ends), prepend=0).tolist()
        self._returned.entries = returned[:, counts[0] :]
        self._front = self._front[:, counts[1] :]
        self._urgent = self._urgent[:, counts[2] :]
        self._urgent_count -= counts[2]
        if self._front.shape[1] + self._urgent_count == 0:
            self._front, self._urgent, self._cut = NO_ENTRIES, NO_ENTRIES, None
        return out

    def _sort_urgent(self) -> None:
        if self._urgent_parts:
            self._urgent = sort_entries(join([self._urgent, *self._urgent_parts]))
            self._urgent_parts.clear()

    def _fold_urgent(self) -> None:
        """Make many urgent entries part of the front, and of too long a front the first run."""
        self._front = sort_entries(join([self._front, self._urgent, *self._urgent_parts]))
        self._urgent = NO_ENTRIES
        self._urgent_parts.clear()
        self._urgent_count = 0
        if self._front.shape[1] > 2 * self._front_size:
            rest = self._front[:, self._front_size :]
            self._front = self._front[:, : self._front_size].copy()
            self._cut = key_at(rest, 0)
            self._runs.insert(0, SortedRun(rest))
            self._join_runs()

    def _refill(self, count: int) -> None:
        """Bring the front to at least `count` entries, as far as there are any."""
        self._sort_pending()
        while self._runs and (size := self._front.shape[1]) < count:
            # More runs, more to take at once: a look at each has its price.
            block = max(count - size, self._front_size + 4 * self._reading.share_min * self.runs)
            taken = take_lowest(self._runs, block, self._reading)
            self._cut = key_at(taken, -1)
            self._runs = [run for run in self._runs if len(run)]
            self._note_held()
            self._front = join([self._front, taken]) if size else taken

    @property
    def runs(self) -> int:
        """Runs, those that are being merged counted as one."""
        return len(self._runs)

    # ------------------------------------------------------------------ runs

    def _note_held(self) -> None:
        self._held = sum(len(run) for run in self._runs if run.in_memory)

    def _sort_pending(self) -> None:
        if self._pending:
            self._runs.append(SortedRun(sort_entries(join(self._pending))))
            self._pending.clear()
            self._pending_count = 0
            self._join_runs()

    def _join_runs(self) -> None:
        """Join runs in memory at both ends while the outer one is not much the smaller."""
        runs = self._runs
        while len(runs) > 1 and self._alike(outer=runs[-1], inner=runs[-2]):
            self._join_at(len(runs) - 2, 2)
        while len(runs) > 1 and self._alike(outer=runs[0], inner=runs[1]):
            self._join_at(0, 2)
        self._note_held()

    def _alike(self, *, outer: SortedRun, inner: SortedRun) -> bool:
        if not (outer.in_memory and inner.in_memory):
            return False
        return 2 * len(outer) >= len(inner) and len(outer) + len(inner) <= self._held_max

    def _join_at(self, at: int, count: int) -> SortedRun:
        joined = SortedRun(sort_entries(join([r.entries for r in self._runs[at : at + count]])))
        self._runs[at : at + count] = [joined]
        return joined

    def _spill(self) -> None:
        """Write runs from memory to disk, largest stretches of neighbours first."""
        if self._held <= self._held_max // 2:
            # To sort and to write are two slices of work.
            self._sort_pending()
            return
        for _ in range(SPILL_GROUPS_MAX):
            if self._held <= self._held_max // 2:
                break
            at, count = self._largest_stretch()
            run = self._runs[at] if count == 1 else self._join_at(at, count)
            try:
                run.write(self._make_run)
            except DiskFullError:
                # 24 bytes a message stay in memory until space returns; deliveries go on.
                self._spill_wait = self._held_max // 4
                break
            self._note_held()
        self._plan_merges()

    def _largest_stretch(self) -> tuple[int, int]:
        """(at, count) of the neighbours in memory that hold most, without making giants."""
        best, best_size = (0, 0), 0
        at, size = 0, 0
        for end, run in enumerate(self._runs):
            if not run.in_memory:
                at, size = end + 1, 0
                continue
            if size + len(run) > 2 * self._held_max:
                at, size = end, 0
            size += len(run)
            if size > best_size:
                best, best_size = (at, end + 1 - at), size
        assert best_size > 0, "what is held is in runs in memory"
        return best

    # ------------------------------------------------------------------ merging on disk

    def _plan_merges(self) -> None:
        """Choose neighbours on disk to be merged."""
        fan = self._merge_runs
        while (at := self._window()) is not None:
            run = SortedRun(NO_ENTRIES, self._runs[at : at + fan])
            self._runs[at : at + fan] = [run]
            self._merging.append(run)
            self._merging.sort(key=len)

    def _window(self) -> int | None:
        """Where neighbours of like size begin, the smallest; if there are many, of any size."""
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
        while size >= self._held_max * self._merge_runs // 2:
            size //= self._merge_runs
            level += 1
        return level

    def _merge_some(self, count: int) -> None:
        """Go on with the merges, in the measure of what was pushed."""
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
