"""Compaction of an hour beside its use: what is read, written and exchanged in which order.

The rows up to a bound are written aside without those that are gone, in slices. Then appends and
syncs wait for a moment: rows that came meanwhile are taken over as they are, in the extents that
they came in (a start may cut there), and the files are exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from delaylog.storage.columns import Mask, every
from delaylog.storage.delay_hour import DelayHour
from delaylog.storage.errors import DiskFullError
from delaylog.storage.file_system import FileSystem
from delaylog.storage.hour_reader import HourReader
from delaylog.storage.hour_rewrite import REWRITE_ROWS, HourRewrite
from delaylog.storage.layout import INDEX_ENTRY, RowArray
from delaylog.storage.work import Work


def compact_hour(
    fs: FileSystem,
    folder: DelayHour,
    alone: Callable[[Work], Work],
    gone: Mask,
    bare: Mask,
    *,
    states: bool,
) -> Work:
    """Remove the rows of `gone`, and the records of those of `bare`; both begin with row 1.

    They end where an extent does, in front of the rows that a kept checkpoint may cut off. `alone`
    runs work while nothing is appended or synced. `states` = the states of removed rows go too.
    """
    rewrite = HourRewrite(fs, folder.folder, folder.hour)
    try:
        box: list[HourReader] = []
        extents = folder.extents()
        yield lambda: box.append(rewrite.reader(len(extents)))
        ends = np.cumsum(extents["count"], dtype=np.int64)
        for first in range(0, len(gone), REWRITE_ROWS):
            part = slice(first, min(first + REWRITE_ROWS, len(gone)))
            last = extents[int(np.searchsorted(ends, part.stop))]["position_last"]
            yield partial(_take, rewrite, box[0], gone[part], bare[part], int(last))
        while not folder.replaceable:
            yield 0.01
        yield from alone(_replace(folder, rewrite))
    except DiskFullError:
        rewrite.drop()
        raise
    finally:
        # Files that are left aside otherwise, the next compaction or a start finds.
        rewrite.close()
    if states:
        for column in folder.state_columns:
            yield partial(column.punch, gone)


def _take(
    rewrite: HourRewrite, reader: HourReader, gone: Mask, bare: Mask, position_last: int
) -> None:
    """The next rows, as many as there are marks."""
    first = rewrite.row_count + 1
    rows: RowArray = np.zeros(len(gone), INDEX_ENTRY)
    if not every(gone):
        rows = np.concatenate(list(reader.scan(first, first + len(gone) - 1)))
    rewrite.write(reader, rows, gone, bare, position_last)


def _replace(folder: DelayHour, rewrite: HourRewrite) -> Work:
    """Take over what was appended meanwhile, and exchange the files."""
    yield folder.load_seconds
    extents = folder.extents()
    box: list[HourReader] = []
    yield lambda: box.append(rewrite.reader(len(extents)))
    for extent in extents[extents["first_index"] > rewrite.row_count]:
        none = np.zeros(int(extent["count"]), np.bool_)
        yield partial(_take, rewrite, box[0], none, none, int(extent["position_last"]))
    yield from folder.replacing(rewrite)
