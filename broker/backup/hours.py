"""Copies the files of one delay hour into a backup while a broker may be writing them.

Rows that a checkpoint counts never change, so they are copied up to its count and checked against
the extents. All other files are written in place. Their copies may be newer than the checkpoint,
and torn: every entry that has changed since has a frame behind the checkpoint, which the replay
applies again.

Compaction may replace the files of rows while they are opened here. Some are then old and others
new, so their checksums do not match, and the copy begins again.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

import numpy as np

from delaylog.broker.backup.copying import Progress, Route, Target
from delaylog.broker.backup.manifest import FileEntry
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.files.whole_files import size_of
from delaylog.storage.hours.hour_rewrite import is_replacing, path_of
from delaylog.storage.hours.indexes.extents import extents_upto, read_extents
from delaylog.storage.layout import (
    EXTENT_HOLE,
    EXTENT_SIZE,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    STATE_ENTRY_SIZE,
    RowArray,
    group_of_name,
)

_INDEX: Final = "delay.index"
_EXTENTS: Final = "extents"
_ROW_FILES: Final = frozenset({_INDEX, "delay.log", _EXTENTS})
_CACHES: Final = frozenset({"second.index"})
"""Files that are rebuilt from the rows if they are missing."""


class Vanished(Exception):
    """A file that the checkpoint needs was removed or replaced before it was copied."""


class HourCopy:
    """Copies one hour. `place` is its folder relative to the data folder and to the backup."""

    def __init__(self, route: Route[Target], place: str, rows: int) -> None:
        self._route = route
        self._place = place
        self._rows = rows
        self._files: dict[str, File] = {}
        self._open()

    def _open(self) -> None:
        """Open every file, the index last: a removal deletes it before most other files.

        The extents come first: a replacement renames them after records and rows, so new extents
        are never opened with old rows. Raises Vanished if the hour was removed.
        """
        path, source = f"{self._route.folder}/{self._place}", self._route.source
        self._replacing = is_replacing(source, path)
        try:
            names = source.listdir(path)
            for name in sorted(names, key=lambda name: (name == _INDEX, name != _EXTENTS)):
                if name not in _CACHES and not name.endswith(".tmp"):
                    self._files[name] = _open_present(source, path, name)
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

    def copy(self, progress: Progress) -> list[FileEntry]:
        """Copy all files. Raises CorruptionError if rows or records are damaged, and Vanished if
        compaction has replaced files since the first one was opened.
        """
        try:
            return self._copy(progress)
        except CorruptionError as error:
            if self._replaced():
                raise Vanished(error.path) from None
            raise

    def _replaced(self) -> bool:
        """Whether compaction has begun or ended to replace files since the first one was opened."""
        path, source = f"{self._route.folder}/{self._place}", self._route.source
        if is_replacing(source, path) != self._replacing:
            return True
        mine = self._file(_EXTENTS)
        try:
            with closing(_open_present(source, path, _EXTENTS)) as present:
                size = mine.size()
                return present.size() < size or present.pread(size, 0) != mine.pread(size, 0)
        except FileNotFoundError:
            # The hour was removed; another attempt says whether it was still needed.
            return True

    def _copy(self, progress: Progress) -> list[FileEntry]:
        place = f"{self._route.dest}/{self._place}"
        self._route.target.mkdir(place)
        extents = self._extents()
        parts: dict[str, list[tuple[int, int, int | None]]] = {
            _EXTENTS: [(0, len(extents) * EXTENT_SIZE, None)],
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
            with closing(self._route.begin(f"{self._place}/{name}", progress)) as copied:
                for start, size, crc in ranges:
                    if copied.copy(self._file(name), start, size) != crc and crc is not None:
                        raise self._damaged(
                            name, start, f"{size} bytes do not match their checksum"
                        )
                entries.append(copied.finish())
        names = sorted(set(self._files) - _ROW_FILES)
        entries += [self._copy_later(name, progress) for name in names]
        self._route.target.sync_folder(place)
        return entries

    def _copy_later(self, name: str, progress: Progress) -> FileEntry:
        """Copy a file that is written in place; of a state file, only entries of counted rows."""
        file = self._files[name]
        whole = size = file.size()
        if group_of_name(name) is not None:
            size = min(size, self._rows * STATE_ENTRY_SIZE)
        with closing(self._route.begin(f"{self._place}/{name}", progress)) as copied:
            copied.copy(file, 0, size)
            # State files are mapped in whole pieces, so the copy must have the full length.
            return copied.finish(whole - size)

    def _file(self, name: str) -> File:
        if name not in self._files:
            raise self._damaged(name, 0, "missing")
        return self._files[name]

    def _damaged(self, name: str, position: int, what: str) -> CorruptionError:
        path = f"{self._route.folder}/{self._place}/{name}"
        return CorruptionError("damage", path=path, position=position, detail=what)

    def _extents(self) -> RowArray:
        """The extents of the counted rows, verified and checked for gaps."""
        file, path = self._file(_EXTENTS), f"{self._route.folder}/{self._place}/{_EXTENTS}"
        _, count = extents_upto(file, path, self._rows)
        extents = read_extents(file, count, path)
        if not extents[-1]["flags"]:
            self._check_last_row(int(extents["log_size"].sum()))
        return extents

    def _check_last_row(self, log_end: int) -> None:
        at = (self._rows - 1) * INDEX_ENTRY_SIZE
        raw = self._file(_INDEX).pread(INDEX_ENTRY_SIZE, at)
        if len(raw) < INDEX_ENTRY_SIZE:
            raise self._damaged(_INDEX, at, f"rows are missing; {self._rows} were durable")
        row = np.frombuffer(raw, INDEX_ENTRY)[0]
        if int(row["offset"]) + int(row["size"]) != log_end:
            raise self._damaged(_INDEX, at, "the last row does not end where the extents end")


def _open_present(source: FileSystem, folder: str, name: str) -> File:
    """Open the file that a start would use."""
    while True:
        path = path_of(source, folder, name)
        try:
            return source.open(path)
        except FileNotFoundError:
            if path == f"{folder}/{name}":
                raise
            # The new file has got its name since `path_of` found it.


def bytes_of_hour(source: FileSystem, folder: str, place: str, rows: int) -> int:
    """Estimate of the bytes that `HourCopy` will copy, for progress; 0 for a removed hour."""
    total = 0
    try:
        for name in source.listdir(f"{folder}/{place}"):
            if name not in _CACHES:
                size = size_of(source, f"{folder}/{place}/{name}")
                total += (
                    min(size, rows * STATE_ENTRY_SIZE) if group_of_name(name) is not None else size
                )
    except FileNotFoundError:
        return 0
    return total
