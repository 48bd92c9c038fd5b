"""Which runs of the far tier are merged, and when.

Merges keep the number of runs small, drop rows that are not needed any more, drop rows of hours
that have folders, and rewrite all rows after a call of `rewrite`. run_merge.py reads and writes the
runs of a merge.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

import numpy as np

from delaylog.storage.columns.questions import Mask
from delaylog.storage.hours.far.far_states import FarStates
from delaylog.storage.hours.far.run_merge import Keep, merge, stack_runs
from delaylog.storage.hours.far.run_numbers import RunNumbers
from delaylog.storage.hours.far.run_stack import MERGED_SETS_MAX, OpenRuns, RunSet, RunStack
from delaylog.storage.hours.far.sorted_run import hour_key
from delaylog.storage.hours.hour_table import HourTable
from delaylog.storage.layout import INDEX_BITS, NO_TAG, Int64Array, RowArray
from delaylog.storage.work import Work

_KEPT_ROWS: Final = 512
"""Rows that one slice of a merge of states looks up."""
_DEAD_ROWS_MIN: Final = 65_536


class FarMerges:
    """Merges the stacks of the far tier."""

    def __init__(
        self,
        files: RunNumbers,
        open_runs: OpenRuns,
        rows: RunStack,
        states: FarStates,
        *,
        read_rows: Callable[[Int64Array], RowArray],
    ) -> None:
        """`read_rows` reads far rows by key, including those in memory."""
        self._files = files
        self._open = open_runs
        self._rows = rows
        self._states = states
        self._read_rows = read_rows
        self.frozen = False
        """A checkpoint is being taken: no merge begins, and none that runs replaces its runs.

        A merge that begins could mix rows from before and after the checkpoint's position. One that
        runs may have dropped rows that messages left after that position: a start from the
        checkpoint applies these moves again, and needs the rows.
        """
        self.splitting: int | None = None
        """The hour that is being copied to a folder. Its states stay until it has left the far
        tier: the folder may have rows that a merge has dropped meanwhile.
        """
        self._merging: set[RunStack] = set()
        self._surplus_left = 0
        """Surplus (see `_surplus`) that the last merge could not drop."""
        self._shed_key = 0
        """Merges drop keys below this one, see `shed_below`."""
        self._rewriting: set[int] = set()
        """Numbers of the sets of rows that existed when `rewrite` was called."""
        self._replaced: set[int] = set()
        """Numbers of the runs in these sets."""

    def due(self, counts: HourTable) -> bool:
        """Whether any sets are to be merged now."""
        if self.frozen:
            return False
        free = [stack for stack in self._stacks() if stack not in self._merging]
        return (self._rows in free and self._mostly_dead(counts)) or any(
            self._next_merge(stack) is not None for stack in free
        )

    def work(self, counts: HourTable, keep: Keep | None = None) -> Work:
        """Run the merges that are due; rows of hours that are near by now are left out.

        `keep` tells which rows are still needed.
        """
        # A checkpoint may have begun since `due` was true.
        if self._rows not in self._merging and not self.frozen:
            dead = self._mostly_dead(counts)
            picked = self._next_merge(self._rows)
            if dead:
                picked = slice(0, min(len(self._rows.sets), MERGED_SETS_MAX))
            yield from self._merge(self._rows, picked, counts, keep)
            if dead:
                self._surplus_left = self._surplus(counts)
        for stack in self._states.all_stacks():
            if stack not in self._merging:
                yield from self._merge(stack, self._next_merge(stack), counts, self._have_rows)

    def flushed_states(self, counts: HourTable) -> Work:
        """Merge the states that flushes wrote. It is quick: it does not check which are needed."""
        for stack in self._states.all_stacks():
            if stack not in self._merging:
                yield from self._merge(stack, stack.flushed(), counts, None)

    # ------------------------------------------------------------------ rewriting, shedding

    def rewrite(self) -> bool:
        """Have the next merges rewrite all rows, so that `keep` decides about each of them.

        Returns False while a merge is running: it may have decided about some of them already.
        """
        if self._rows in self._merging:
            return False
        self._rewriting = {one.number for one in self._rows.sets}
        self._replaced = {run.number for run in self._rows.runs()}
        return True

    @property
    def rewritten(self) -> bool:
        """Whether the files of all runs that existed when `rewrite` was called are removed."""
        fs = self._open.fs
        return not any(fs.exists(self._open.path(number)) for number in self._replaced)

    def shed_below(self, hour: int) -> bool:
        """Whether the tier has no rows or states left of hours before `hour`, which have folders.

        If it has some, the next merges drop them; a call with 0 cancels this. An hour that becomes
        far again numbers its rows from 1, and must not find rows from when it was far before.
        """
        self._shed_key = key = hour_key(hour)
        if not key:
            return True
        sets = [one for stack in self._stacks() for one in stack.sets]
        if any(self._sheds(one) for one in sets) or self._states.changed_below(key):
            return False
        self._shed_key = 0
        return True

    def _sheds(self, one: RunSet) -> bool:
        return any(run.first_key < self._shed_key for run in one.runs)

    # ------------------------------------------------------------------ choosing

    def _stacks(self) -> list[RunStack]:
        return [self._rows, *self._states.all_stacks()]

    def _next_merge(self, stack: RunStack) -> slice | None:
        """Neighbouring sets that are to be merged."""
        numbers = self._rewriting if stack is self._rows else ()
        at = [k for k, one in enumerate(stack.sets) if one.number in numbers or self._sheds(one)]
        if at:
            return slice(at[0], min(at[-1] + 1, at[0] + MERGED_SETS_MAX))
        return stack.crowded()

    def _mostly_dead(self, counts: HourTable) -> bool:
        surplus = self._surplus(counts)
        # A merge drops rows of hours that have left the far tier, and ended rows that `keep`
        # releases. `_surplus_left` is the surplus that the last merge had to keep: without it,
        # merges would repeat.
        self._surplus_left = min(self._surplus_left, surplus)
        return surplus > 2 * self._surplus_left

    def _surplus(self, counts: HourTable) -> int:
        """Number of rows above twice the living ones, minus a minimum that is worth a merge."""
        return max(self._rows.rows - 2 * counts.far_living - _DEAD_ROWS_MIN, 0)

    # ------------------------------------------------------------------ merging

    def _merge(
        self, stack: RunStack, picked: slice | None, counts: HourTable, keep: Keep | None
    ) -> Work:
        """Merge the sets `picked`; with `keep`, then all other sets of the stack that are due."""
        self._merging.add(stack)
        try:
            while picked is not None and not self.frozen:
                sets = stack.sets[picked]
                numbers = [run.number for run in stack_runs(sets)]
                self._files.claim(numbers)

                def number(numbers: list[int] = numbers) -> int:
                    numbers.append(self._files.take_number())
                    return numbers[-1]

                try:
                    runs = yield from merge(
                        self._open,
                        stack,
                        sets,
                        first_key=hour_key(counts.far_from),
                        number=number,
                        keep=keep,
                    )
                    while self.frozen:
                        yield 0.001
                    stack.replace(sets, runs)
                finally:
                    self._files.release(numbers)
                self._open.drop(run.number for run in stack_runs(sets))
                picked = self._next_merge(stack) if keep is not None else None
        finally:
            self._merging.discard(stack)

    def _have_rows(self, keys: Int64Array, _states: RowArray) -> Generator[None, None, Mask]:
        """Which keys name rows that were not dropped: states of dropped rows are not needed."""
        kept = np.ones(len(keys), np.bool_)
        for first in range(0, len(keys), _KEPT_ROWS):
            part = slice(first, first + _KEPT_ROWS)
            kept[part] = self._read_rows(keys[part])["epoch_tag"] != NO_TAG
            if self.splitting is not None:
                kept[part] |= keys[part] >> INDEX_BITS == self.splitting
            yield None
        return kept
