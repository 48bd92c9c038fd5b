"""Reads rows, states and records: from the files of one hour, or from the runs of the far tier.

The files of an hour are read in parts of whole extents. Rows are valid if the checksum of their
extent matches, states if their seals match. The broker may be writing: states change in place, so a
broken seal is read again before it counts as damage. The index is opened last, because it is
deleted first when an hour is removed.

The runs of the far tier have rows of hours beyond the next 35, many hours per file. A checkpoint
lists the runs, which are immutable; `SortedRun` verifies rows and records in blocks of 1,024 rows.
Of several states of a row, that of the newest run counts. `RunFiles` has the same methods as
`HourFiles`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File
from delaylog.storage.files.os_file_system import ReadOnlyFileSystem
from delaylog.storage.hours.extents import range_crc
from delaylog.storage.hours.far.sorted_run import RunFacts, SortedRun
from delaylog.storage.hours.state_seal import broken
from delaylog.storage.layout import (
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    RUN_BLOCK_ROWS,
    STATE_ENTRY,
    STATE_ENTRY_SIZE,
    Int64Array,
    RowArray,
    StateArray,
    group_of_name,
    state_name,
)
from pyspark_delaylog.segments.errors import DamagedError, RetiredError, SegmentError, damaged
from pyspark_delaylog.segments.folder import Folder, read_folder
from pyspark_delaylog.segments.options import Wanted
from pyspark_delaylog.segments.plan import HourSlice, gone_since, hour_path, read_extents

# ------------------------------------------------------------------------ the files of one hour

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


# --------------------------------------------------------------------- the runs of the far tier


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


def run_path(folder: Folder, run: RunFacts) -> str:
    """The file of a run."""
    return f"{folder.path}/hours/far/{run.number}.run"


def open_run(folder: Folder, run: RunFacts, dtype: np.dtype[Any]) -> SortedRun:
    """Open a run. Raises DamagedError if its keys are damaged, SegmentError if it was replaced."""
    path = run_path(folder, run)
    try:
        return SortedRun(ReadOnlyFileSystem(), path, dtype, run)
    except CorruptionError as error:
        raise damaged(error) from None
    except FileNotFoundError:
        newer = read_folder(folder.path)
        if newer.position > folder.position:
            raise SegmentError(
                f"{path} was replaced by newer runs while it was to be read: read again, "
                "or take a backup and read that"
            ) from None
        raise DamagedError(path, 0, "missing") from None


class RunFiles:
    """A run of rows, and the runs with their states."""

    def __init__(
        self, folder: Folder, run: RunFacts, wanted: Wanted, *, text: bool, skip: bool
    ) -> None:
        self._folder, self._run, self._wanted = folder, run, wanted
        self._text, self._skip = text, skip
        self._file = open_run(folder, run, INDEX_ENTRY)
        self._states: dict[int, SortedRun | None] = {}

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
        ends = self._file.block_ends
        starts = np.append(0, ends[:-1])
        start = 0
        while start < len(ends):
            stop = min(start + PART_ROWS // RUN_BLOCK_ROWS, len(ends))
            if self._text:
                limit = int(starts[start]) + PART_BYTES
                stop = min(stop, max(start + 1, int(np.searchsorted(ends, limit, "right"))))
            part = self._part(start, stop)
            if len(part.rows):
                yield part
            start = stop

    def _part(self, start: int, stop: int) -> RunPart:
        first, last = start * RUN_BLOCK_ROWS, min(stop * RUN_BLOCK_ROWS, self._run.rows)
        keys = self._file.keys_between(first, last)
        asked = np.flatnonzero(self._folder.is_far(keys) & _in_hours(keys, self._wanted))
        if len(asked) == 0:
            return RunPart(np.zeros(0, INDEX_ENTRY), np.zeros(0, np.bool_), asked, start, asked)
        rows, good = np.zeros(last - first, INDEX_ENTRY), np.ones(last - first, np.bool_)
        for at in range(0, last - first, RUN_BLOCK_ROWS):
            block = slice(at, min(at + RUN_BLOCK_ROWS, last - first))
            try:
                rows[block] = self._file.rows(np.arange(block.start, block.stop) + first)
            except CorruptionError as error:
                self._found(error)
                good[block] = False
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
            at = file.find(part.keys[left])
            here = at >= 0
            if here.any():
                entries[left[here]] = file.unchecked_rows(at[here])
                left = left[~here]
        bad = broken(entries)
        if bad.any():
            what = f"{int(np.count_nonzero(bad))} states that are not the ones written"
            self._found(CorruptionError(what, path=run_path(self._folder, self._run), position=0))
            part.good &= ~bad
        return entries

    def _state_file(self, run: RunFacts) -> SortedRun | None:
        """None if the run is damaged, and damage is skipped."""
        if run.number not in self._states:
            try:
                self._states[run.number] = open_run(self._folder, run, STATE_ENTRY)
            except DamagedError:
                if not self._skip:
                    raise
                self._states[run.number] = None
        return self._states[run.number]

    # ------------------------------------------------------------------ records

    def check_records(self, part: RunPart, at: Int64Array) -> None:
        """Verify the checksums of the records of these rows, block by block."""
        of_block = part.first_block + part.starts // RUN_BLOCK_ROWS
        for number in np.unique(of_block[at]).tolist():
            try:
                self._file.check_records(number)
            except CorruptionError as error:
                self._found(error)
                part.good[of_block == number] = False

    def read_records(self, start: int, size: int) -> bytes:
        """Read a range of the records."""
        raw = self._file.raw_records(start, size)
        assert len(raw) == size, "an open run has the size that its header says"
        return raw

    def _found(self, error: CorruptionError) -> None:
        if not self._skip:
            raise damaged(error)


def _in_hours(keys: Int64Array, wanted: Wanted) -> npt.NDArray[np.bool_]:
    out: npt.NDArray[np.bool_] = (keys >> INDEX_BITS >= wanted.hour_from) & (
        keys >> INDEX_BITS < wanted.hour_to
    )
    return out
