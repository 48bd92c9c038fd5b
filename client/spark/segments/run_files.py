"""Reads the runs of the far tier: rows of hours beyond the next 35, many hours per file.

A checkpoint lists the runs, which are immutable (storage/hours/far/sorted_run.py has the layout).
Rows and records are valid if the checksum of their block of 1,024 rows matches, states if their
seals match. Of several states of a row, that of the newest run counts. `RunFiles` has the same
methods as `HourFiles`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from delaylog.storage.hours.far.sorted_run import RunFacts
from delaylog.storage.hours.states.state_seal import broken
from delaylog.storage.layout import (
    FILE_VERSION,
    INDEX_BITS,
    INDEX_ENTRY,
    RUN_BLOCK,
    RUN_BLOCK_ROWS,
    RUN_HEADER,
    RUN_HEADER_SIZE,
    RUN_MAGIC,
    STATE_ENTRY,
    Int64Array,
    RowArray,
    StateArray,
)
from pyspark_delaylog.segments.errors import DamagedError, SegmentError
from pyspark_delaylog.segments.folder import Folder, read_folder
from pyspark_delaylog.segments.hour_files import PART_BYTES, PART_ROWS, pread
from pyspark_delaylog.segments.wanted import Wanted

_KEY_SIZE: Final = 8


@dataclass(slots=True)
class RunPart:
    """Rows of consecutive blocks, and which of them are valid."""

    rows: RowArray
    good: npt.NDArray[np.bool_]
    keys: Int64Array
    first_block: int
    starts: Int64Array
    """The numbers of the rows within the blocks; rows of skipped hours are left out."""

    @property
    def hours(self) -> Int64Array:
        """The hour of each row."""
        return self.keys >> INDEX_BITS


class RunFile:
    """An open run. DamagedError if its keys are damaged."""

    def __init__(self, folder: Folder, run: RunFacts, dtype: np.dtype[Any]) -> None:
        self.path = f"{folder.path}/hours/far/{run.number}.run"
        try:
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            newer = read_folder(folder.path)
            if newer.position > folder.position:
                raise SegmentError(
                    f"{self.path} was replaced by newer runs while it was to be read: read again, "
                    "or take a backup and read that"
                ) from None
            raise DamagedError(self.path, 0, "missing") from None
        try:
            self._open(run, dtype)
        except BaseException:
            self.close()
            raise

    def _open(self, run: RunFacts, dtype: np.dtype[Any]) -> None:
        raw = pread(self.descriptor, RUN_HEADER_SIZE, 0)
        fields = RUN_HEADER.unpack(raw) if len(raw) == RUN_HEADER_SIZE else (0,) * 10
        magic, version, width, rows, log_size, _, _, keys_crc, table_crc, crc = fields
        whole = (magic, version) == (RUN_MAGIC, FILE_VERSION)
        whole = whole and crc == crc32c(RUN_HEADER.pack(*fields[:-1], 0))
        if not whole or (width, rows, log_size) != (dtype.itemsize, run.rows, run.log_size):
            raise DamagedError(self.path, 0, "a damaged run")
        self.rows_start = RUN_HEADER_SIZE + rows * _KEY_SIZE
        keys = pread(self.descriptor, rows * _KEY_SIZE, RUN_HEADER_SIZE)
        table_start = self.rows_start + rows * width
        size = -(-rows // RUN_BLOCK_ROWS) * RUN_BLOCK.itemsize
        table = pread(self.descriptor, size, table_start)
        if crc32c(keys) != keys_crc or crc32c(table) != table_crc:
            raise DamagedError(self.path, RUN_HEADER_SIZE, "keys that are not the ones written")
        self.keys = np.frombuffer(keys, "<i8")
        self.blocks = np.frombuffer(table, RUN_BLOCK)
        self.log_start = table_start + len(table)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


class RunFiles:
    """A run of rows, and the runs with their states."""

    def __init__(
        self, folder: Folder, run: RunFacts, wanted: Wanted, *, text: bool, skip: bool
    ) -> None:
        self._folder, self._run, self._wanted = folder, run, wanted
        self._text, self._skip = text, skip
        self._file = RunFile(folder, run, INDEX_ENTRY)
        self._states: dict[int, RunFile | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file."""
        for file in (self._file, *self._states.values()):
            if file is not None:
                file.close()
        self._states.clear()

    # ------------------------------------------------------------------ rows and states

    def parts(self) -> Iterator[RunPart]:
        """Yield the run in parts that fit into memory. DamagedError unless damage is skipped.

        Rows of hours that are no longer far, or not selected, are left out.
        """
        file = self._file
        blocks = len(file.blocks)
        ends = np.append(file.blocks["log_start"][1:].astype(np.int64), self._run.log_size)
        start = 0
        while start < blocks:
            stop = min(start + PART_ROWS // RUN_BLOCK_ROWS, blocks)
            if self._text:
                limit = int(file.blocks["log_start"][start]) + PART_BYTES
                stop = min(stop, max(start + 1, int(np.searchsorted(ends, limit, "right"))))
            part = self._part(start, stop)
            if len(part.rows):
                yield part
            start = stop

    def _part(self, start: int, stop: int) -> RunPart:
        file, width = self._file, INDEX_ENTRY.itemsize
        first, last = start * RUN_BLOCK_ROWS, min(stop * RUN_BLOCK_ROWS, self._run.rows)
        keys = file.keys[first:last]
        asked = np.flatnonzero(self._folder.is_far(keys) & _in_hours(keys, self._wanted))
        if len(asked) == 0:
            return RunPart(np.zeros(0, INDEX_ENTRY), np.zeros(0, np.bool_), asked, start, asked)
        size = (last - first) * width
        raw = pread(file.descriptor, size, file.rows_start + first * width)
        raw = raw.ljust(size, b"\0")
        good, view = np.ones(last - first, np.bool_), memoryview(raw)
        for number in range(start, stop):
            a, b = (number - start) * RUN_BLOCK_ROWS, (number + 1 - start) * RUN_BLOCK_ROWS
            if crc32c(view[a * width : b * width]) != int(file.blocks["rows_crc"][number]):
                self._found(file.rows_start + (first + a) * width, "rows")
                good[a:b] = False
        rows = np.frombuffer(raw, INDEX_ENTRY)
        if len(asked) < len(rows):
            rows, good, keys = rows[asked], good[asked], keys[asked]
        return RunPart(rows, good, keys, start, asked)

    def states(self, group: int, part: RunPart) -> StateArray:
        """The state entries of a part's rows. A damaged entry marks its row as damaged."""
        entries = np.zeros(len(part.rows), STATE_ENTRY)
        left = np.arange(len(part.rows))
        for run in self._folder.runs.states.get(group, ()):
            near = (part.keys[left] >= run.first_key) & (part.keys[left] <= run.last_key)
            if not near.any():
                continue
            file = self._state_file(run)
            if file is None:
                part.good[left[near]] = False
                continue
            at = np.searchsorted(file.keys, part.keys[left])
            at[at == len(file.keys)] = 0
            here = file.keys[at] == part.keys[left]
            if here.any():
                first, last = int(at[here].min()), int(at[here].max()) + 1
                width = STATE_ENTRY.itemsize
                size = (last - first) * width
                raw = pread(file.descriptor, size, file.rows_start + first * width)
                found = np.frombuffer(raw.ljust(size, b"\xff"), STATE_ENTRY)
                entries[left[here]] = found[at[here] - first]
                left = left[~here]
        bad = broken(entries)
        if bad.any():
            self._found(0, f"{int(np.count_nonzero(bad))} states")
            part.good &= ~bad
        return entries

    def _state_file(self, run: RunFacts) -> RunFile | None:
        """None if the run is damaged, and damage is skipped."""
        if run.number not in self._states:
            try:
                self._states[run.number] = RunFile(self._folder, run, STATE_ENTRY)
            except DamagedError:
                if not self._skip:
                    raise
                self._states[run.number] = None
        return self._states[run.number]

    # ------------------------------------------------------------------ records

    def check_records(self, part: RunPart, at: Int64Array) -> None:
        """Verify the checksums of the records of these rows, block by block."""
        file = self._file
        ends = np.append(file.blocks["log_start"][1:].astype(np.int64), self._run.log_size)
        of_block = part.first_block + part.starts // RUN_BLOCK_ROWS
        for number in np.unique(of_block[at]).tolist():
            start = int(file.blocks["log_start"][number])
            raw = pread(file.descriptor, int(ends[number]) - start, file.log_start + start)
            if crc32c(raw) != int(file.blocks["log_crc"][number]):
                self._found(file.log_start + start, "records")
                part.good[of_block == number] = False

    def read_records(self, start: int, size: int) -> bytes:
        """Read a range of the records."""
        raw = pread(self._file.descriptor, size, self._file.log_start + start)
        if len(raw) < size:
            raise DamagedError(self._file.path, start, f"{size} bytes are not there")
        return raw

    def _found(self, position: int, what: str) -> None:
        if not self._skip:
            raise DamagedError(self._file.path, position, f"{what} that are not the ones written")


def _in_hours(keys: Int64Array, wanted: Wanted) -> npt.NDArray[np.bool_]:
    out: npt.NDArray[np.bool_] = (keys >> INDEX_BITS >= wanted.hour_from) & (
        keys >> INDEX_BITS < wanted.hour_to
    )
    return out
