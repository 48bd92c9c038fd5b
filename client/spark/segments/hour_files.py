"""Reads the files of one hour in parts of whole extents: rows, states and ranges of records.

Rows are valid if the checksum of their extent matches, states if their seals match. The broker may
be writing: states change in place, so a broken seal is read again before it counts as damage. The
index is opened last, because it is deleted first when an hour is removed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from delaylog.storage.files.file_system import File
from delaylog.storage.files.os_file_system import ReadOnlyFileSystem
from delaylog.storage.hours.indexes.extent_checks import range_crc
from delaylog.storage.hours.states.state_seal import broken
from delaylog.storage.layout import (
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    STATE_ENTRY,
    STATE_ENTRY_SIZE,
    Int64Array,
    RowArray,
    StateArray,
    group_of_name,
    state_name,
)
from pyspark_delaylog.segments.errors import DamagedError, RetiredError
from pyspark_delaylog.segments.folder import Folder
from pyspark_delaylog.segments.planning import HourSlice, gone_since, hour_path, read_extents

PART_ROWS: Final = 65_536
"""Rows per part, unless one extent has more."""
PART_BYTES: Final = 32 << 20
"""Bytes of records per part, unless one extent has more."""
_LOOKS: Final = 4
_LOOK_PAUSE_S: Final = 0.02


@dataclass(slots=True)
class Part:
    """Rows of consecutive extents, and which of them are valid."""

    rows: RowArray
    good: npt.NDArray[np.bool_]
    extents: RowArray
    hour: int

    @property
    def hours(self) -> Int64Array:
        """The hour of each row."""
        return np.full(len(self.rows), self.hour)

    @property
    def first(self) -> int:
        """The number of its first row, counted from 0."""
        return int(self.extents[0]["first_index"]) - 1


class HourFiles:
    """One slice of an hour. RetiredError if the hour was deleted since the checkpoint."""

    def __init__(self, folder: Folder, piece: HourSlice, *, text: bool, skip: bool) -> None:
        self.path = hour_path(folder.path, piece.hour)
        self._hour = piece.hour
        self._skip = skip
        self._text = text
        self._files: dict[str, File] = {}
        rows = folder.hours[piece.hour].rows
        try:
            self._open(text)
            extents = read_extents(folder.path, piece.hour, rows, whole=not skip)
        except FileNotFoundError as error:
            self.close()
            if gone_since(folder, piece.hour):
                raise RetiredError(self.path) from None
            raise DamagedError(str(error.filename), 0, "missing") from None
        except BaseException:
            self.close()
            raise
        self._extents = extents[piece.first : piece.first + piece.count]

    def _open(self, text: bool) -> None:
        fs = ReadOnlyFileSystem()
        names = [name for name in fs.listdir(self.path) if group_of_name(name) is not None]
        for name in [*names, *(["delay.log"] if text else []), "delay.index"]:
            self._files[name] = fs.open(f"{self.path}/{name}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    # ------------------------------------------------------------------ rows and states

    def parts(self) -> Iterator[Part]:
        """Yield the slice in parts that fit into memory. DamagedError unless damage is skipped."""
        counts = self._extents["count"].astype(np.int64)
        sizes = self._extents["log_size"].astype(np.int64)
        start = 0
        while start < len(counts):
            rows, stop = np.cumsum(counts[start:]), len(counts)
            stop = start + max(int(np.searchsorted(rows, PART_ROWS, "right")), 1)
            if self._text:
                held = np.cumsum(sizes[start:])
                stop = min(stop, start + max(int(np.searchsorted(held, PART_BYTES, "right")), 1))
            yield self._part(self._extents[start:stop])
            start = stop

    def _part(self, extents: RowArray) -> Part:
        counts = extents["count"].astype(np.int64)
        first, total = int(extents[0]["first_index"]) - 1, int(counts.sum())
        index = self._files["delay.index"]
        raw = index.pread(total * INDEX_ENTRY_SIZE, first * INDEX_ENTRY_SIZE)
        view, good, at = memoryview(raw), np.ones(total, np.bool_), 0
        for count, crc in zip(counts.tolist(), extents["index_crc"].tolist(), strict=True):
            start = at * INDEX_ENTRY_SIZE
            if crc32c(view[start : start + count * INDEX_ENTRY_SIZE]) != crc:
                self._found(
                    "delay.index",
                    first * INDEX_ENTRY_SIZE + start,
                    f"{count} rows that are not the ones written",
                )
                good[at : at + count] = False
            at += count
        raw = raw.ljust(total * INDEX_ENTRY_SIZE, b"\0")
        return Part(np.frombuffer(raw, INDEX_ENTRY), good, extents, self._hour)

    def states(self, group: int, part: Part) -> StateArray:
        """The state entries of a part's rows. A damaged entry marks its row as damaged.

        A missing or short file reads as zeros.
        """
        count, first, name = len(part.rows), part.first, state_name(group)
        file = self._files.get(name)
        if file is None:
            return np.zeros(count, STATE_ENTRY)
        size = count * STATE_ENTRY_SIZE
        for look in range(_LOOKS):
            raw = file.pread(size, first * STATE_ENTRY_SIZE).ljust(size, b"\0")
            entries: StateArray = np.frombuffer(raw, STATE_ENTRY)
            bad = broken(entries)
            if not bad.any():
                break
            if look < _LOOKS - 1:
                time.sleep(_LOOK_PAUSE_S)
        else:
            at = (first + int(np.flatnonzero(bad)[0])) * STATE_ENTRY_SIZE
            what = f"{int(np.count_nonzero(bad))} states that are not the ones written"
            self._found(name, at, what)
            part.good &= ~bad
        return entries

    # ------------------------------------------------------------------ records

    def check_records(self, part: Part, at: Int64Array) -> None:
        """Verify the checksums of the records of these rows, extent by extent."""
        counts = part.extents["count"].astype(np.int64)
        ends = np.cumsum(counts)
        touched = np.unique(np.searchsorted(ends, at, "right"))
        for number in touched.tolist():
            extent = part.extents[number]
            offset, size = int(extent["log_offset"]), int(extent["log_size"])
            if range_crc(self._files["delay.log"], offset, size) != int(extent["log_crc"]):
                self._found("delay.log", offset, f"{size} bytes that are not the ones written")
                part.good[int(ends[number] - counts[number]) : int(ends[number])] = False

    def read_records(self, start: int, size: int) -> bytes:
        """Read a range of the delay log."""
        raw = self._files["delay.log"].pread(size, start)
        if len(raw) < size:
            raise DamagedError(f"{self.path}/delay.log", start, f"{size} bytes are not there")
        return raw

    def _found(self, name: str, position: int, what: str) -> None:
        if not self._skip:
            raise DamagedError(f"{self.path}/{name}", position, what)
