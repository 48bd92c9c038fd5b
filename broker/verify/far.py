"""Verify the far tier: every run that the newest checkpoint names, block by block."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import numpy as np

from delaylog.broker.verify.report import Report
from delaylog.storage.columns.questions import every, rising
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.folder.checkpoint import FarRuns
from delaylog.storage.hours.far.sorted_run import BLOCK_ROWS, RunFacts, SortedRun, run_size
from delaylog.storage.hours.states.state_seal import broken
from delaylog.storage.layout import (
    HOUR_MS,
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_MASK,
    Int64Array,
    RowArray,
)

FAR: Final = "hours/far"
_SLICE_BLOCKS: Final = 16


def verify_far(
    fs: FileSystem, folder: str, runs: FarRuns, report: Report
) -> Generator[None, None, None]:
    """Check the runs that a checkpoint names; other files are left-overs."""
    place = f"{folder}/{FAR}"
    present = set(fs.listdir(place)) if fs.exists(place) else set()
    # Other files belong to the checkpoint before, or to a run that was being written.
    report.files += len(present - runs.sizes.keys())
    for dtype, facts in runs.each():
        yield from _run(fs, place, dtype, facts, report)


def _run(
    fs: FileSystem, place: str, dtype: np.dtype[Any], facts: RunFacts, report: Report
) -> Generator[None, None, None]:
    name = f"{FAR}/{facts.number}.run"
    if not fs.exists(f"{place}/{facts.number}.run"):
        report.damaged(name, 0, f"missing; {facts.rows} rows were durable")
        return
    report.files += 1
    report.bytes_read += run_size(facts, dtype)
    try:
        run = SortedRun(fs, f"{place}/{facts.number}.run", dtype, facts)
    except CorruptionError as error:
        report.damaged(name, error.position, error.what)
        return
    try:
        last = -1
        for first in range(0, facts.rows, BLOCK_ROWS * _SLICE_BLOCKS):
            stop = min(first + BLOCK_ROWS * _SLICE_BLOCKS, facts.rows)
            at = np.arange(first, stop)
            keys, rows = run.keys_between(first, stop), run.rows(at)
            if dtype == INDEX_ENTRY:
                offsets, sizes = rows["offset"].astype(np.int64), rows["size"].astype(np.int64)
                run.records(at, offsets, sizes)
                good = _rows_are_those_of(keys, rows)
            else:
                good = not broken(rows).any()
            if not good or int(keys[0]) <= last or not rising(keys):
                report.damaged(name, first, "rows that do not match their keys")
                return
            last = int(keys[-1])
            yield
    except CorruptionError as error:
        report.damaged(name, error.position, error.what)
    finally:
        run.close()


def _rows_are_those_of(keys: Int64Array, rows: RowArray) -> bool:
    number = rows["global_index"] == keys & INDEX_MASK
    hour = rows["deliver_at"] // HOUR_MS == keys >> INDEX_BITS
    return every(number) and every(hour)
