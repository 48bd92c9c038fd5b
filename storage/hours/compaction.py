"""Compaction of an hour while it is in use: the order of reads, writes and replacement.

The rows up to a bound are copied to new files in slices, without the rows to remove. Then appends
and syncs wait for a moment: rows that were appended meanwhile are copied unchanged, with the ends
of their extents (a start may cut the hour there), and the new files replace the old ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from delaylog.storage.columns import Mask, every, parts_of
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.hours.hour_reader import HourReader
from delaylog.storage.hours.hour_rewrite import (
    REWRITE_BYTES,
    REWRITE_ROWS,
    HourRewrite,
    settle_rewrite,
)
from delaylog.storage.layout import INDEX_ENTRY, RowArray
from delaylog.storage.work import Work


@dataclass(frozen=True, slots=True)
class Removal:
    """The rows to remove from an hour. The masks begin with row 1 and end with an extent, before
    the rows that a start from a kept checkpoint may cut off.
    """

    gone: Mask
    bare: Mask
    """Rows that stay without their record."""
    states: bool
    """Whether the states of removed rows are removed too: then nothing may refer to the rows."""


def compact_hour(
    fs: FileSystem,
    folder: DelayHour,
    alone: Callable[[Work], Work],
    removal: Removal,
    stopping: Callable[[], bool],
) -> Work:
    """Remove rows of an hour. `alone` runs work while nothing is appended or synced.

    Once `stopping()` is true, the compaction is abandoned, and the hour stays unchanged.
    """
    gone, bare = removal.gone, removal.bare
    rewrite = HourRewrite(fs, folder.folder, folder.hour)
    try:
        box: list[HourReader] = []
        extents = folder.extents()

        def begin() -> None:
            # A compaction that was closed, or found no descriptor, may have left files.
            settle_rewrite(fs, folder.folder)
            # A marker whose removal is not durable must not come back beside the new files.
            fs.sync_folder(folder.folder)
            box.append(rewrite.reader(len(extents)))

        yield begin
        ends = np.cumsum(extents["count"], dtype=np.int64)
        for first in range(0, len(gone), REWRITE_ROWS):
            part = slice(first, min(first + REWRITE_ROWS, len(gone)))
            last = extents[int(np.searchsorted(ends, part.stop))]["position_last"]
            yield partial(_take, rewrite, box[0], gone[part], bare[part], int(last))
            if stopping():
                yield rewrite.drop
                return
        while not folder.replaceable:
            yield 0.01
            if stopping():
                yield rewrite.drop
                return
        yield from alone(_replace(folder, rewrite))
    except DiskFullError:
        rewrite.drop()
        raise
    finally:
        # After another error, the next compaction or a start removes the new files.
        rewrite.close()
    if removal.states:
        for column in folder.all_states():
            yield partial(column.punch, gone)


def _take(
    rewrite: HourRewrite, reader: HourReader, gone: Mask, bare: Mask, position_last: int
) -> None:
    """Copy the next rows, as many as the masks have entries."""
    first = rewrite.row_count + 1
    rows: RowArray = np.zeros(len(gone), INDEX_ENTRY)
    if not every(gone):
        rows = np.concatenate(list(reader.scan(first, first + len(gone) - 1)))
    sizes = np.where(gone | bare, 0, rows["size"].astype(np.int64))
    for part in parts_of(sizes, len(sizes), REWRITE_BYTES):
        rewrite.write(reader, rows[part], gone[part], bare[part], position_last)


def _replace(folder: DelayHour, rewrite: HourRewrite) -> Work:
    """Copy the rows that were appended meanwhile, and replace the files."""
    yield folder.heads.load
    extents = folder.extents()
    box: list[HourReader] = []
    yield lambda: box.append(rewrite.reader(len(extents)))
    for extent in extents[extents["first_index"] > rewrite.row_count]:
        none = np.zeros(int(extent["count"]), np.bool_)
        yield partial(_take, rewrite, box[0], none, none, int(extent["position_last"]))
    yield from folder.replacing(rewrite)
