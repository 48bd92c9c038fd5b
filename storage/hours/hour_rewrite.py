"""Compaction of one hour: rewrites its files without the rows that have ended.

Row numbers do not change. A removed row reads as zeros: whole pages of them are holes in
`delay.index`, and `delay.log` does not contain them. Chains skip them, so offsets, chains and
extents may differ between nodes. The new files are written beside the old ones. Once the file
`rewritten.tmp` is durable they replace the old ones, and a start finishes an interrupted
replacement (`settle_rewrite`). The caller decides which rows are removed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from delaylog.storage.columns import Mask, every, put_rows, take_rows
from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.hours.extents import ExtentChecks, make_extent, read_extents, seal_extent
from delaylog.storage.hours.hour_reader import HourReader
from delaylog.storage.hours.second_index import SecondIndex
from delaylog.storage.layout import (
    EXTENT,
    EXTENT_HOLE,
    EXTENT_MAGIC,
    EXTENT_REWRITTEN,
    EXTENT_SIZE,
    FILE_VERSION,
    INDEX_ENTRY_SIZE,
    TEXT_SIZES,
    Int64Array,
    RowArray,
)
from delaylog.storage.messages.rows import seconds_of

REWRITE_ROWS: Final = 32_768
"""Rows of one slice, and at most of one extent of the new files."""
REWRITE_BYTES: Final = 16 << 20
"""Bytes of the records of such an extent, unless one record has more: they are in memory twice."""
_MARKER: Final = "rewritten.tmp"
_FILES: Final = ("delay.log", "delay.index", "extents", "second.index")
_GAP_ROWS: Final = 36
"""Gaps of fewer removed rows than this are written as zeros: they cover no whole page."""


def settle_rewrite(fs: FileSystem, folder: str) -> None:
    """At a start: finish a replacement that had begun, or remove the files of an unfinished one."""
    if not fs.exists(folder):
        return
    if is_replacing(fs, folder):
        _replace(fs, folder)
        return
    left = [name for name in _FILES if fs.exists(f"{folder}/{name}.tmp")]
    if left:
        # A marker may be gone by name only: with it and a part of these files, a start after a
        # power cut would mix them with the old ones.
        fs.sync_folder(folder)
    for name in left:
        fs.unlink(f"{folder}/{name}.tmp")


def is_replacing(fs: FileSystem, folder: str) -> bool:
    """Whether the new files of an hour are replacing the old ones, or a start has to finish it."""
    return fs.exists(f"{folder}/{_MARKER}")


def path_of(fs: FileSystem, folder: str, name: str) -> str:
    """The path of a file's present bytes: that of the new file if a replacement was interrupted."""
    aside = f"{folder}/{name}.tmp"
    replaced = is_replacing(fs, folder) and fs.exists(aside)
    return aside if replaced else f"{folder}/{name}"


def _replace(fs: FileSystem, folder: str) -> None:
    for name in _FILES:
        if fs.exists(f"{folder}/{name}.tmp"):
            fs.rename(f"{folder}/{name}.tmp", f"{folder}/{name}")
    fs.sync_folder(folder)
    fs.unlink(f"{folder}/{_MARKER}")
    fs.sync_folder(folder)


class HourRewrite:
    """One rewrite of the first rows of an hour. Every method may run on any thread.

    It reads through separate descriptors, so the hour stays in use until `replace`.
    """

    def __init__(self, fs: FileSystem, folder: str, hour: int) -> None:
        self._fs = fs
        self._folder = folder
        self._hour = hour
        self._old: dict[str, File] = {}
        self._new: dict[str, File] = {}
        self._extents: list[RowArray] = []
        self.seconds = SecondIndex()
        """The second index of the rows that were kept."""
        self.row_count = 0
        self.log_size = 0
        self.replaced = False
        """Whether the new files have replaced the old ones, or a start or `drop` will finish it."""

    @property
    def extent_count(self) -> int:
        """Extents of the new files so far."""
        return len(self._extents)

    def _open_old(self, name: str) -> File:
        if name not in self._old:
            self._old[name] = self._fs.open(f"{self._folder}/{name}")
        return self._old[name]

    def _open_new(self, name: str) -> File:
        if name not in self._new:
            self._new[name] = file = self._fs.open(f"{self._folder}/{name}.tmp", create=True)
            file.truncate(0)
        return self._new[name]

    def reader(self, extent_count: int) -> HourReader:
        """A reader of the first `extent_count` extents of the old files, which verifies them."""
        path = f"{self._folder}/extents"
        file = self._open_old("extents")
        extents = read_extents(file, extent_count, path) if extent_count else np.zeros(0, EXTENT)
        checks = ExtentChecks(self._open_old, self._folder, extents, good_from=extent_count)
        reader = HourReader(self._open_old, self._folder, lambda: checks)
        reader.row_count = int(extents["count"].sum(dtype=np.int64))
        reader.sparse = True
        return reader

    def write(
        self, reader: HourReader, rows: RowArray, gone: Mask, bare: Mask, position_last: int
    ) -> None:
        """Copy the next rows as one extent, except `gone` rows; `bare` rows lose their record.

        `position_last` = the position of the last frame that created one of them.
        """
        first, n = self.row_count + 1, len(rows)
        kept = np.flatnonzero(~(gone | (rows["global_index"] == 0)))
        extent = np.zeros(1, EXTENT)
        data = b""
        if len(kept):
            mine = take_rows(rows, kept)
            without = bare[kept]
            for name in ("size", *TEXT_SIZES):
                mine[name][without] = 0
            data = reader.records(take_rows(mine, ~without)) if not every(without) else b""
            ends = np.cumsum(mine["size"].astype(np.int64))
            mine["offset"] = self.log_size + ends - mine["size"]
            local = mine["local_index"].copy()
            self.seconds.apply(self.seconds.chain(mine, seconds_of(mine, self._hour)))
            mine["local_index"] = local
            extent = make_extent(
                mine,
                [data],
                first_index=first,
                log_offset=self.log_size,
                log_size=len(data),
                position_last=position_last,
            )
            written = np.zeros(n, rows.dtype)
            put_rows(written, kept, mine)
            extent["index_crc"] = crc32c(written.view(np.uint8).data)
            self._write_rows(written, kept, first)
            if data:
                self._open_new("delay.log").pwritev([data], self.log_size)
        self._add(extent, first, n, hole=len(kept) == 0, position_last=position_last)
        self.row_count += n
        self.log_size += len(data)
        self.seconds.covers = self.row_count

    def _write_rows(self, rows: RowArray, kept: Int64Array, first: int) -> None:
        """Write the kept rows at their offsets; large gaps between them stay holes."""
        raw = rows.view(np.uint8).data
        apart = np.flatnonzero(np.diff(kept) > _GAP_ROWS) + 1
        starts = kept[np.concatenate([[0], apart])].tolist()
        stops = (kept[np.concatenate([apart - 1, [len(kept) - 1]])] + 1).tolist()
        file = self._open_new("delay.index")
        for start, stop in zip(starts, stops, strict=True):
            part = raw[start * INDEX_ENTRY_SIZE : stop * INDEX_ENTRY_SIZE]
            file.pwritev([part], (first - 1 + start) * INDEX_ENTRY_SIZE)

    def _add(
        self, extent: RowArray, first: int, count: int, *, hole: bool, position_last: int
    ) -> None:
        if hole and self._extents and int(self._extents[-1]["flags"][0]) & EXTENT_HOLE:
            # Adjacent holes become one extent of any number of rows.
            last = self._extents[-1]
            last["count"] += count
            last["position_last"] = position_last
            seal_extent(last)
            return
        if hole:
            extent = make_hole(first, self.log_size, position_last)
        extent["count"] = count
        extent["flags"] = EXTENT_REWRITTEN | (EXTENT_HOLE if hole else 0)
        seal_extent(extent)
        self._extents.append(extent)

    def finish(self) -> None:
        """Complete the new files and make them durable, beside the old ones."""
        self._open_new("delay.index").truncate(self.row_count * INDEX_ENTRY_SIZE)
        self._open_new("delay.log").truncate(self.log_size)
        extents = self._open_new("extents")
        extents.pwritev([b"".join(one.tobytes() for one in self._extents)], 0)
        extents.truncate(len(self._extents) * EXTENT_SIZE)
        for file in self._new.values():
            file.fdatasync()

    def replace(self, counts: npt.NDArray[np.uint32]) -> None:
        """Replace the old files by the new ones; `counts` = the rows of each second so far."""
        self.seconds.count = counts
        raw = self.seconds.encode()
        seconds = self._open_new("second.index")
        seconds.pwritev([raw], 0)
        seconds.truncate(len(raw))
        self.finish()
        self._fs.sync_folder(self._folder)
        marker = f"{self._folder}/{_MARKER}"
        self._fs.open(marker, create=True).close()
        try:
            self._fs.sync_folder(self._folder)
        except BaseException:
            # The old files stay in use, so a start must not replace them. The caller syncs the
            # folder before it counts on rows that are appended to them.
            self._fs.unlink(marker)
            raise
        self.close()
        self.replaced = True
        _replace(self._fs, self._folder)

    def drop(self) -> None:
        """Give up the rewrite and remove the new files; finish a replacement that has begun."""
        self.close()
        settle_rewrite(self._fs, self._folder)

    def close(self) -> None:
        """Close every file."""
        for file in (*self._old.values(), *self._new.values()):
            file.close()
        self._old.clear()
        self._new.clear()


def make_hole(first: int, log_offset: int, position_last: int) -> RowArray:
    """The extent of rows that were all removed: an array of one, without its checksum yet.

    Its zone map matches no filter.
    """
    hole = np.zeros(1, EXTENT)
    hole["magic"], hole["version"] = EXTENT_MAGIC, FILE_VERSION
    hole["first_index"], hole["log_offset"] = first, log_offset
    hole["position_last"] = position_last
    return hole
