"""Splitting: a far hour gets its folder, before any of its messages is due.

Its rows are read from every run that has some, completed with tombstones where a compaction
dropped rows, and appended to the folder in row order. Look-ups go on in the far tier meanwhile. The
switch is one step on the caller's thread (far_border.py): from then on the hour is a near one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Final

import numpy as np

from delaylog.storage.columns.gather import gather
from delaylog.storage.columns.whole_rows import put_rows
from delaylog.storage.hours.delay_hour import DelayHour, Flush
from delaylog.storage.hours.far.far_tier import FarTier, tombstones
from delaylog.storage.hours.far.run_stack import OpenRuns
from delaylog.storage.hours.far.sorted_run import RunFacts, hour_key
from delaylog.storage.hours.indexes.second_index import SecondIndex
from delaylog.storage.layout import INDEX_ENTRY, INDEX_MASK, RowArray
from delaylog.storage.work import Work

SPLIT_ROWS_MAX: Final = 32_768
"""Rows of one append to the folder, as in a flush."""
_OPEN_MAX: Final = 8


def fill_folder(far: FarTier, folder: DelayHour, flushed: Callable[[], int]) -> Work:
    """Append the rows of a far hour to its folder, from the first one missing to `flushed()`."""
    with closing(OpenRuns(far.fs, far.folder, _OPEN_MAX)) as reader:
        while (last := flushed()) > folder.row_count:
            first = folder.row_count + 1
            stop = min(last, first + SPLIT_ROWS_MAX - 1)
            runs = far.runs_of(folder.hour)
            written: list[Flush] = []
            heads = folder.heads.get()
            with far.files.pinned(run.number for run in runs):
                yield partial(_append, reader, folder, heads, runs, (first, stop), written)
            folder.commit_flush(written[0])


def _append(
    reader: OpenRuns,
    folder: DelayHour,
    heads: SecondIndex,
    runs: list[RunFacts],
    span: tuple[int, int],
    written: list[Flush],
) -> None:
    rows, records = read_span(reader, folder.hour, runs, span)
    position = max((run.position_last for run in runs), default=0)
    flush = folder.prepare(rows, [records], position, heads)
    folder.write_flush(flush)
    written.append(flush)


def read_span(
    reader: OpenRuns, hour: int, runs: list[RunFacts], span: tuple[int, int]
) -> tuple[RowArray, bytes]:
    """Rows first..last of an hour with their records in row order. Any thread."""
    first, last = span
    base = hour_key(hour)
    rows = tombstones(np.arange(first, last + 1))
    parts: list[bytes] = []
    size = 0
    for facts in runs:
        run = reader.get(facts, INDEX_ENTRY)
        start, stop = run.span(base + first, base + last)
        if start == stop:
            continue
        at = np.arange(start, stop)
        found = run.rows(at).copy()
        offsets, sizes = found["offset"].astype(np.int64), found["size"].astype(np.int64)
        parts.append(run.records(at, offsets, sizes))
        found["offset"] = np.cumsum(sizes) - sizes + size
        size += len(parts[-1])
        put_rows(rows, (run.keys_between(start, stop) & INDEX_MASK) - first, found)
    sizes = rows["size"].astype(np.int64)
    records = gather(b"".join(parts), rows["offset"].astype(np.int64), sizes)
    return rows, records
