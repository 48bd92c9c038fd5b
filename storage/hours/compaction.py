"""Compaction of an hour beside its use: what is read, written and exchanged in which order.

The rows up to a bound are written aside without those that are gone, in slices. Then appends and
syncs wait for a moment: rows that came meanwhile are taken over as they are, in the extents that
they came in (a start may cut there), and the files are exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from delaylog.storage.columns.questions import Mask, every
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.hours.hour_reader import HourReader
from delaylog.storage.hours.hour_rewrite import REWRITE_ROWS, HourRewrite
from delaylog.storage.layout import INDEX_ENTRY, RowArray
from delaylog.storage.work import Work


@dataclass(frozen=True, slots=True)
class Removal:
    """What of an hour goes. The masks begin with row 1 and end where an extent does, in front of
    the rows that a kept checkpoint may cut off.
    """

    gone: Mask
    bare: Mask
    """Rows that lose their record and stay."""
    states: bool
    """The states of rows that are gone go too: nothing may name the rows."""


def compact_hour(
    fs: FileSystem,
    folder: DelayHour,
    alone: Callable[[Work], Work],
    removal: Removal,
    stopping: Callable[[], bool],
) -> Work:
    """Remove rows of an hour. `alone` runs work while nothing is appended or synced.

    When `stopping` says so, it is given up, and nothing has changed.
    """
    gone, bare = removal.gone, removal.bare
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
        # Files that are left aside otherwise, the next compaction or a start finds.
        rewrite.close()
    if removal.states:
        for column in folder.all_states():
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
    yield folder.heads.load
    extents = folder.extents()
    box: list[HourReader] = []
    yield lambda: box.append(rewrite.reader(len(extents)))
    for extent in extents[extents["first_index"] > rewrite.row_count]:
        none = np.zeros(int(extent["count"]), np.bool_)
        yield partial(_take, rewrite, box[0], none, none, int(extent["position_last"]))
    yield from folder.replacing(rewrite)
