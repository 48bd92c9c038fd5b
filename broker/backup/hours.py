"""The files of one delay hour into a backup, beside a broker that goes on writing them.

Rows that a checkpoint counts are never changed, so they are copied up to its count and checked
against the extents on the way. Everything else in the folder is written in place: it may be newer
than the checkpoint, and torn where it is, because every entry that changed since has a frame
behind the checkpoint which puts it right again.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from crc32c import crc32c

from delaylog.broker.backup.copying import CopiedFile, Progress, Target
from delaylog.broker.backup.manifest import FileEntry
from delaylog.storage.errors import CorruptionError
from delaylog.storage.file_system import File, FileSystem
from delaylog.storage.layout import (
    EXTENT,
    EXTENT_HOLE,
    EXTENT_MAGIC,
    EXTENT_SIZE,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    STATE_ENTRY_SIZE,
    RowArray,
)

_INDEX: Final = "delay.index"
_ROW_FILES: Final = frozenset({_INDEX, "delay.log", "extents"})
_CACHES: Final = frozenset({"second.index"})
"""Rebuilt from the rows where they are missing."""


class Vanished(Exception):
    """A file that the checkpoint needs is gone: retention was faster."""


def is_state(name: str) -> bool:
    """Whether a file is a state column: an entry a row."""
    return name == "state" or (name.startswith("state.") and name[6:].isdigit())


class HourCopy:
    """Copies one hour. `place` is its folder relative to the data folder and to the backup."""

    def __init__(self, source: FileSystem, folder: str, place: str, rows: int) -> None:
        self._source = source
        self._folder = folder
        self._place = place
        self._rows = rows
        self._files: dict[str, File] = {}
        self._open()

    def _open(self) -> None:
        """Open everything; the index last, because it is the first to go when an hour is removed.

        Raises Vanished when it is gone.
        """
        path = f"{self._folder}/{self._place}"
        try:
            names = self._source.listdir(path)
            for name in sorted(names, key=lambda name: name == _INDEX):
                if name not in _CACHES and not name.endswith(".tmp"):
                    self._files[name] = self._source.open(f"{path}/{name}")
            if _INDEX not in names:
                raise Vanished(path)
        except FileNotFoundError:
            self.close()
            raise Vanished(path) from None
        except Vanished:
            self.close()
            raise

    def close(self) -> None:
        """Close every file."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def copy(self, target: Target, partial: str, progress: Progress) -> list[FileEntry]:
        """Copy all files. Raises CorruptionError where the rows are not what was written."""
        target.mkdir(f"{partial}/{self._place}")
        extents = self._extents()
        parts: dict[str, list[tuple[int, int, int | None]]] = {
            "extents": [(0, len(extents) * EXTENT_SIZE, None)],
            _INDEX: [
                (
                    (int(extent["first_index"]) - 1) * INDEX_ENTRY_SIZE,
                    int(extent["count"]) * INDEX_ENTRY_SIZE,
                    None if extent["flags"] & EXTENT_HOLE else int(extent["index_crc"]),
                )
                for extent in extents
            ],
            "delay.log": [
                (int(extent["log_offset"]), int(extent["log_size"]), int(extent["log_crc"]))
                for extent in extents
            ],
        }
        entries = []
        for name, ranges in parts.items():
            copied = self._begin(target, partial, name, progress)
            try:
                for start, size, crc in ranges:
                    if copied.copy(self._file(name), start, size) != crc and crc is not None:
                        raise self._damaged(
                            name, start, f"{size} bytes that are not the ones written"
                        )
                entries.append(copied.finish())
            finally:
                copied.close()
        entries += [
            self._copy_later(target, partial, name, progress)
            for name in sorted(set(self._files) - _ROW_FILES)
        ]
        target.sync_folder(f"{partial}/{self._place}")
        return entries

    def _begin(self, target: Target, partial: str, name: str, progress: Progress) -> CopiedFile:
        return CopiedFile(target, partial, f"{self._place}/{name}", progress)

    def _copy_later(self, target: Target, partial: str, name: str, progress: Progress) -> FileEntry:
        """A file that is written in place: of states the entries of counted rows, else all."""
        file = self._files[name]
        whole = size = file.size()
        if is_state(name):
            size = min(size, self._rows * STATE_ENTRY_SIZE)
        copied = self._begin(target, partial, name, progress)
        try:
            copied.copy(file, 0, size)
            # A column's pieces are mapped, so its file must stay as long as it was.
            return copied.finish(whole - size)
        finally:
            copied.close()

    def _file(self, name: str) -> File:
        if name not in self._files:
            raise self._damaged(name, 0, "missing")
        return self._files[name]

    def _damaged(self, name: str, position: int, what: str) -> CorruptionError:
        path = f"{self._folder}/{self._place}/{name}"
        return CorruptionError("damage", path=path, position=position, detail=what)

    def _extents(self) -> RowArray:
        """The extents of the counted rows, each checked and behind the one before."""
        raw = self._file("extents").pread(self._file("extents").size(), 0)
        found = np.frombuffer(raw[: len(raw) // EXTENT_SIZE * EXTENT_SIZE], EXTENT)
        rows = log_end = 0
        whole = True
        for number, extent in enumerate(found):
            if rows >= self._rows:
                break
            whole = not extent["flags"]
            at = number * EXTENT_SIZE
            if extent["magic"] != EXTENT_MAGIC or crc32c(raw[at : at + EXTENT_SIZE - 4]) != int(
                extent["crc"]
            ):
                raise self._damaged("extents", at, "a damaged extent")
            if int(extent["first_index"]) != rows + 1 or int(extent["log_offset"]) != log_end:
                raise self._damaged("extents", at, "it does not follow the one before")
            rows += int(extent["count"])
            log_end += int(extent["log_size"])
        else:
            number = len(found)
        if rows != self._rows:
            what = f"they cover {rows} rows, the checkpoint counts {self._rows}"
            raise self._damaged("extents", number * EXTENT_SIZE, what)
        if whole:
            self._check_last_row(log_end)
        return found[:number]

    def _check_last_row(self, log_end: int) -> None:
        at = (self._rows - 1) * INDEX_ENTRY_SIZE
        raw = self._file(_INDEX).pread(INDEX_ENTRY_SIZE, at)
        if len(raw) < INDEX_ENTRY_SIZE:
            raise self._damaged(_INDEX, at, f"rows are missing; {self._rows} were durable")
        row = np.frombuffer(raw, INDEX_ENTRY)[0]
        if int(row["offset"]) + int(row["size"]) != log_end:
            raise self._damaged(_INDEX, at, "its last row does not end where its extents do")


def bytes_of_hour(source: FileSystem, folder: str, place: str, rows: int) -> int:
    """About how much `HourCopy` will copy, for progress; 0 when the hour is gone."""
    total = 0
    try:
        for name in source.listdir(f"{folder}/{place}"):
            if name not in _CACHES:
                file = source.open(f"{folder}/{place}/{name}")
                size = file.size()
                total += min(size, rows * STATE_ENTRY_SIZE) if is_state(name) else size
                file.close()
    except FileNotFoundError:
        return 0
    return total
