"""A stack of run sets, and merges of them: the far tier's rows, or the states of one group.

A set is one or more runs with ascending, disjoint ranges of keys. A flush pushes a set of level 0;
once eight sets of a level are neighbours, a merge replaces them by one of the next level, so a row
is rewritten once each time the stack grows eightfold. The newest set that has a key wins.

A merge makes one set of several, without the rows that are not needed any more. It is background
work in slices. Reads and writes are jobs for any thread and use separate file descriptors. Between
the jobs, the caller's thread decides which rows stay.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from dataclasses import astuple, dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns import (
    concat_rows,
    copy_rows,
    every,
    gather,
    parts_of,
    put_rows,
    some,
    take_rows,
)
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.hours.far.sorted_run import RunFacts, RunRows, SortedRun, write_run
from delaylog.storage.layout import INDEX_ENTRY, Int64Array, RowArray
from delaylog.storage.work import IoJob

# ------------------------------------------------------------------------------------ the stack

FAN_IN: Final = 8
MERGED_SETS_MAX: Final = 32
"""Most sets of one merge: it has one run of each open."""


@dataclass(frozen=True, slots=True)
class RunSet:
    """Runs with ascending, disjoint ranges of keys."""

    number: int
    """Stays the same when runs of hours that came near are dropped from the set."""
    level: int
    runs: tuple[RunFacts, ...]

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)


class OpenRuns:
    """Runs in use. The `files_max` most recently used have an open file and keys in memory.

    All others keep only the record of which blocks were verified, so these are not checked again.
    """

    def __init__(self, fs: FileSystem, folder: str, files_max: int) -> None:
        self.fs = fs
        self.folder = folder
        self._files_max = files_max
        self._runs: dict[int, SortedRun] = {}
        self._files: OrderedDict[int, SortedRun] = OrderedDict()
        """Runs with an open file, the least recently used first."""

    def path(self, number: int) -> str:
        """The file of a run."""
        return f"{self.folder}/{number}.run"

    def get(self, facts: RunFacts, dtype: np.dtype[Any]) -> SortedRun:
        """The run, with its file open."""
        number = facts.number
        if number not in self._files and len(self._files) >= self._files_max:
            self._files.popitem(last=False)[1].rest()
        run = self._runs.get(number)
        if run is None:
            run = self._runs[number] = SortedRun(self.fs, self.path(number), dtype, facts)
        else:
            run.open_file()
        self._files[number] = run
        self._files.move_to_end(number)
        return run

    def drop(self, numbers: Iterable[int]) -> None:
        """Close runs that are no longer needed."""
        for number in numbers:
            self._files.pop(number, None)
            run = self._runs.pop(number, None)
            if run is not None:
                run.close()

    def close(self) -> None:
        """Close all."""
        self.drop(list(self._runs))


class RunStack:
    """Sets of runs of one layout, oldest first."""

    def __init__(self, dtype: np.dtype[Any], open_runs: OpenRuns) -> None:
        self.dtype = dtype
        self.sets: list[RunSet] = []
        self._open = open_runs
        self._sets_made = 0

    def _set(self, level: int, runs: Iterable[RunFacts]) -> RunSet:
        self._sets_made += 1
        return RunSet(self._sets_made, level, tuple(runs))

    @property
    def rows(self) -> int:
        """Rows in all runs."""
        return sum(one.rows for one in self.sets)

    def runs(self) -> list[RunFacts]:
        """Every run."""
        return [run for one in self.sets for run in one.runs]

    def push(self, runs: Iterable[RunFacts]) -> None:
        """Add the runs that one flush wrote, as a set."""
        self.sets.append(self._set(0, runs))

    # ------------------------------------------------------------------ look-ups

    def fill_rows(self, out: RowArray, left: Int64Array, keys: Int64Array) -> Int64Array:
        """Put the newest row of each key into `out`; return the places still missing."""

        def take(run: SortedRun, at: Int64Array, places: Int64Array) -> None:
            put_rows(out, places, run.rows(at))

        return self._find(left, keys, take)

    def fill_records(
        self,
        parts: list[tuple[Int64Array, bytes]],
        left: Int64Array,
        keys: Int64Array,
        rows: RowArray,
        *,
        checked: bool = True,
    ) -> Int64Array:
        """Append (places, their records) of rows found here; return the places still missing."""

        def take(run: SortedRun, at: Int64Array, places: Int64Array) -> None:
            offsets = rows["offset"][places].astype(np.int64)
            sizes = rows["size"][places].astype(np.int64)
            parts.append((places, run.records(at, offsets, sizes, checked=checked)))

        return self._find(left, keys, take)

    def _find(
        self,
        left: Int64Array,
        keys: Int64Array,
        take: Callable[[SortedRun, Int64Array, Int64Array], None],
    ) -> Int64Array:
        """Call `take(run, rows, places)` for the runs that have some of `keys[left]`, newest first.

        Only runs whose range of keys overlaps are opened. Returns the places still missing.
        """
        # In key order, the keys in a run's range are one slice, and its pages are read in order.
        left = left[np.argsort(keys[left])]
        mine = keys[left]
        for facts in (run for one in reversed(self.sets) for run in one.runs):
            if len(left) == 0:
                break
            start, stop = np.searchsorted(mine, [facts.first_key, facts.last_key + 1]).tolist()
            if start == stop:
                continue
            run = self._open.get(facts, self.dtype)
            at = run.find(mine[start:stop])
            here = at >= 0
            if some(here):
                take(run, at[here], left[start:stop][here])
                rest = np.ones(len(left), np.bool_)
                rest[start:stop] = ~here
                left, mine = left[rest], mine[rest]
        return left

    # ------------------------------------------------------------------ merging

    def crowded(self) -> slice | None:
        """The oldest sets of one level that are to be merged, if there are enough of them."""
        start = 0
        for at in range(1, len(self.sets) + 1):
            if at == len(self.sets) or self.sets[at].level != self.sets[start].level:
                if at - start >= FAN_IN:
                    return slice(start, min(at, start + MERGED_SETS_MAX))
                start = at
        return None

    def flushed(self) -> slice | None:
        """The sets that flushes wrote, if there are enough of them to be merged."""
        first = len(self.sets)
        while first and self.sets[first - 1].level == 0:
            first -= 1
        last = min(len(self.sets), first + MERGED_SETS_MAX)
        return slice(first, last) if last - first >= FAN_IN else None

    def replace(self, old: list[RunSet], runs: tuple[RunFacts, ...]) -> None:
        """Replace the sets `old`, neighbours in the stack, by the merged `runs`."""
        numbers = {one.number for one in old}
        at = [place for place, one in enumerate(self.sets) if one.number in numbers]
        if not at:
            # Meanwhile all of their hours have left the far tier.
            return
        assert at[-1] - at[0] + 1 == len(at), "merged sets are neighbours"
        level = max(one.level for one in old) + 1
        self.sets[at[0] : at[-1] + 1] = [self._set(level, runs)] if runs else []

    def drop_below(self, key: int) -> None:
        """Remove runs whose keys are all below `key`."""
        kept = []
        for one in self.sets:
            runs = tuple(run for run in one.runs if run.last_key >= key)
            if runs:
                kept.append(RunSet(one.number, one.level, runs))
        self.sets = kept

    # ------------------------------------------------------------------ checkpoints

    def saved(self, *, wanted: Callable[[RunFacts], bool] = lambda run: True) -> list[Any]:
        """The sets as plain values, with the runs that are `wanted`."""
        out = []
        for one in self.sets:
            runs = [list(astuple(run)) for run in one.runs if wanted(run)]
            if runs:
                out.append([one.level, runs])
        return out

    def restore(self, saved: list[Any]) -> None:
        """Take over the sets that `saved` returned."""
        self.sets = [
            self._set(level, (RunFacts(*facts) for facts in runs)) for level, runs in saved
        ]


# -------------------------------------------------------------------------------------- merging

Keep = Callable[[Int64Array, RowArray], Generator[None, None, npt.NDArray[np.bool_]]]
"""Decides in slices which rows, given with their keys, are still needed."""

SLICE_ROWS: Final = 1_024
"""Rows that are read at a time from each set."""
SLICE_BYTES: Final = 4 << 20
"""Bytes of their records, unless one record has more."""
RUN_ROWS_MAX: Final = 131_072
RUN_BYTES_MAX: Final = 32 << 20
"""A merged run is collected in memory, and written once it has reached one of these limits."""


@dataclass(slots=True)
class _Cursor:
    """How far a set has been read."""

    runs: tuple[RunFacts, ...]
    which: int = 0
    at: int = 0
    ahead: RowArray = field(default_factory=lambda: np.zeros(0, INDEX_ENTRY))
    """Rows from `at` on that were read to learn the sizes of their records; none of states."""

    def reach(self, run: SortedRun, end: int) -> int:
        """The end of the next slice, which is at most `end`."""
        known = self.at + len(self.ahead)
        if known < end:
            self.ahead = concat_rows([self.ahead, run.rows(np.arange(known, end))])
        sizes = self.ahead["size"].astype(np.int64)
        count: int = next(parts_of(sizes, SLICE_ROWS, SLICE_BYTES)).stop
        return self.at + count


@dataclass(slots=True)
class _Output:
    parts: list[RunRows] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def add(self, part: RunRows) -> None:
        self.parts.append(part)
        self.rows += len(part.keys)
        self.size += len(part.records)

    def whole(self) -> RunRows:
        """All parts as one. Each column is freed once it is copied, since they are large."""
        parts, self.parts = self.parts, []
        keys = np.concatenate([part.keys for part in parts])
        columns = [part.rows for part in parts], [part.records for part in parts]
        parts.clear()
        rows = concat_rows(columns[0])
        columns[0].clear()
        if rows.dtype == INDEX_ENTRY:
            sizes = rows["size"].astype(np.int64)
            rows["offset"] = np.cumsum(sizes) - sizes
        return RunRows(keys, rows, b"".join(columns[1]))


def merge(
    files: OpenRuns,
    stack: RunStack,
    sets: list[RunSet],
    *,
    first_key: int,
    number: Callable[[], int],
    keep: Keep | None,
) -> Generator[IoJob | float | None, None, tuple[RunFacts, ...]]:
    """Write `sets`, neighbours of a stack, as one; rows below `first_key` are left out.

    `number` returns the number of a new run, `files` its path. Returns the new runs.
    """
    # A slice reads from every set, so a run of each stays open.
    reader = OpenRuns(files.fs, files.folder, len(sets))
    cursors = [_Cursor(one.runs) for one in sets]
    runs = stack_runs(sets)
    positions = min(run.position_first for run in runs), max(run.position_last for run in runs)
    written: list[RunFacts] = []
    output = _Output()

    def write() -> None:
        new = number()
        written.append(write_run(files.fs, files.path(new), new, output.whole(), positions))

    try:
        while True:
            parts: list[RunRows] = []
            # Without `keep` no row needs a decision, so one job reads rows for a whole run.
            slices_max = 1 if keep is not None else None
            yield partial(_read, stack, reader, cursors, parts, slices_max)
            if not parts:
                break
            for part in parts:
                mask = part.keys >= first_key
                if keep is not None:
                    mask &= yield from keep(part.keys, part.rows)
                output.add(part if every(mask) else _kept(part, mask))
            parts.clear()
            if output.rows >= RUN_ROWS_MAX or output.size >= RUN_BYTES_MAX:
                yield write
                output = _Output()
        if output.rows:
            yield write
        if written:
            yield lambda: files.fs.sync_folder(files.folder)
        return tuple(written)
    finally:
        reader.close()


def stack_runs(sets: list[RunSet]) -> list[RunFacts]:
    """All runs of some sets."""
    return [run for one in sets for run in one.runs]


def _read(
    stack: RunStack,
    reader: OpenRuns,
    cursors: list[_Cursor],
    parts: list[RunRows],
    slices_max: int | None,
) -> None:
    """Append the next slices to `parts`: at most `slices_max`, and no more than fit in a run."""
    rows = size = 0
    while rows < RUN_ROWS_MAX and size < RUN_BYTES_MAX and len(parts) != slices_max:
        part = _next_slice(stack, reader, cursors)
        if part is None:
            return
        parts.append(part)
        rows += len(part.keys)
        size += len(part.records)


def _next_slice(stack: RunStack, reader: OpenRuns, cursors: list[_Cursor]) -> RunRows | None:
    """The next rows of all sets, by key. If several sets have a key, the newest one counts."""
    heads: list[tuple[SortedRun, _Cursor, int]] = []
    with_records = stack.dtype == INDEX_ENTRY
    bound: int | None = None
    for cursor in cursors:
        if cursor.which < len(cursor.runs):
            run = reader.get(cursor.runs[cursor.which], stack.dtype)
            end = min(cursor.at + SLICE_ROWS, run.facts.rows)
            stop = cursor.reach(run, end) if with_records else end
            last = int(run.keys_between(stop - 1, stop)[0])
            bound = last if bound is None else min(bound, last)
            heads.append((run, cursor, stop))
    if bound is None:
        return None
    parts: list[RunRows] = []
    for run, cursor, stop in heads:
        keys = run.keys_between(cursor.at, stop)
        count = int(np.searchsorted(keys, bound, side="right"))
        if count:
            at = np.arange(cursor.at, cursor.at + count)
            if with_records:
                rows, cursor.ahead = copy_rows(cursor.ahead[:count]), cursor.ahead[count:]
                offsets, sizes = rows["offset"].astype(np.int64), rows["size"].astype(np.int64)
                records = run.records(at, offsets, sizes)
                rows["offset"] = np.cumsum(sizes) - sizes
            else:
                rows, records = run.rows(at), b""
            parts.append(RunRows(keys[:count], rows, records))
        cursor.at += count
        if cursor.at == run.facts.rows:
            reader.drop([run.facts.number])
            cursor.which, cursor.at = cursor.which + 1, 0
    return _woven(parts)


def _woven(parts: list[RunRows]) -> RunRows:
    """Slices of several sets, oldest first, as one."""
    if len(parts) == 1:
        return parts[0]
    keys = np.concatenate([part.keys for part in parts])
    rows = concat_rows([part.rows for part in parts])
    records = b"".join([part.records for part in parts])
    if rows.dtype == INDEX_ENTRY:
        bases = np.cumsum([0, *(len(part.records) for part in parts)])[:-1]
        rows["offset"] += np.repeat(bases, [len(part.keys) for part in parts]).astype(np.uint64)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    newest = np.ones(len(keys), np.bool_)
    newest[:-1] = keys[1:] != keys[:-1]
    return _picked(keys[newest], take_rows(rows, order[newest]), records)


def _kept(part: RunRows, mask: npt.NDArray[np.bool_]) -> RunRows:
    return _picked(part.keys[mask], take_rows(part.rows, mask), part.records)


def _picked(keys: Int64Array, rows: RowArray, records: bytes) -> RunRows:
    """Rows with their records, picked by offset from `records`."""
    if rows.dtype == INDEX_ENTRY:
        sizes = rows["size"].astype(np.int64)
        records = gather(records, rows["offset"].astype(np.int64), sizes)
        rows["offset"] = np.cumsum(sizes) - sizes
    return RunRows(keys, rows, records)
