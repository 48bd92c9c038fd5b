"""Merging of sorted runs: several sets become one, without the rows that are not needed any more.

It is background work in slices. Reads and writes are jobs for any thread and use separate file
descriptors. Between the jobs, the caller's thread decides which rows stay.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.columns.gather import gather
from delaylog.storage.columns.questions import every
from delaylog.storage.columns.whole_rows import concat_rows, take_rows
from delaylog.storage.hours.far.run_stack import OpenRuns, RunSet, RunStack
from delaylog.storage.hours.far.sorted_run import RunFacts, RunRows, write_run
from delaylog.storage.layout import INDEX_ENTRY, Int64Array, RowArray
from delaylog.storage.work import IoJob

Keep = Callable[[Int64Array, RowArray], Generator[None, None, npt.NDArray[np.bool_]]]
"""Decides in slices which rows, given with their keys, are still needed."""

SLICE_ROWS: Final = 1_024
"""Rows that are read at a time from each set."""
RUN_ROWS_MAX: Final = 131_072
RUN_BYTES_MAX: Final = 32 << 20
"""A merged run is collected in memory, and written once it has reached one of these limits."""


@dataclass(slots=True)
class _Cursor:
    """How far a set has been read."""

    runs: tuple[RunFacts, ...]
    which: int = 0
    at: int = 0


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
    heads: list[tuple[Any, _Cursor, int]] = []
    bound: int | None = None
    for cursor in cursors:
        if cursor.which < len(cursor.runs):
            run = reader.get(cursor.runs[cursor.which], stack.dtype)
            stop = min(cursor.at + SLICE_ROWS, run.facts.rows)
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
            rows = run.rows(at).copy()
            records = b""
            if stack.dtype == INDEX_ENTRY:
                offsets, sizes = rows["offset"].astype(np.int64), rows["size"].astype(np.int64)
                records = run.records(at, offsets, sizes)
                rows["offset"] = np.cumsum(sizes) - sizes
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
