"""Definitions of schedules on disk: what callers have said, with bodies.

A definition is a packed schedule. At first it is in the log only, in the frame that put it. Before
each checkpoint those are appended to a file, so that the log need not be kept for them. The file is
rewritten once most of it is of schedules that were changed or dropped since. A place is one number:

    -1 - position          of the frame in the log
    file << 40 | offset    of the record in schedules/FILE.definitions

A record is HEADER (16: crc32c u32 of the rest, size u32, number of the schedule i64) and the packed
schedule. A checkpoint says how much of a file it needs. What is behind that is not part of it.

Definitions that were used last are cached unpacked, within a bound of bytes.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import msgpack
import numpy as np
from crc32c import crc32c

from delaylog.broker.engine.schedules.columns import Column, Columns
from delaylog.broker.engine.schedules.schedule import Progress, Schedule
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File, FileSystem, parent_of
from delaylog.storage.layout import FrameKind, Int64Array
from delaylog.storage.log.frames import Frame
from delaylog.storage.work import Work

HEADER: Final = struct.Struct("<IIq")
assert HEADER.size == 16
_CRC_SIZE: Final = 4
_OFFSET_BITS: Final = 40
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1
STEP_RECORDS: Final = 64
"""Records that one job copies."""
STEP_BYTES: Final = 1 << 20
"""Their bytes, after the first one."""
SPARE_BYTES: Final = 16 << 20
"""A file is not rewritten for less than this."""


class Extent(NamedTuple):
    """The file that takes new definitions, and how much of it is filled."""

    file: int
    """0: none was begun."""
    end: int

    @property
    def name(self) -> str:
        """Its name in the folder of schedules."""
        return file_name(self.file)


def begin_folder(fs: FileSystem, folder: str) -> None:
    """Create the folder of schedules, durably, if it is not there."""
    if not fs.exists(folder):
        fs.mkdir(folder)
        fs.sync_folder(parent_of(folder))


def file_name(number: int) -> str:
    """The name of a file of definitions."""
    return f"{number}.definitions"


def encode(number: int, packed: bytes) -> bytes:
    """A record."""
    rest = struct.pack("<Iq", len(packed), number) + packed
    return struct.pack("<I", crc32c(rest)) + rest


def decode(raw: bytes, number: int, size: int) -> bytes | None:
    """The packed schedule of a record; None if it is not the one of this schedule."""
    if len(raw) != HEADER.size + size:
        return None
    crc, found_size, found = HEADER.unpack_from(raw)
    if (found_size, found) != (size, number) or crc32c(raw[_CRC_SIZE:]) != crc:
        return None
    return raw[HEADER.size :]


class Definitions:
    """The definitions of one data folder."""

    def __init__(
        self, fs: FileSystem, folder: str, frame_at: Callable[[int], Frame], columns: Columns
    ) -> None:
        """`frame_at` reads a frame of the log."""
        self._fs = fs
        self._folder = folder
        self._frame_at = frame_at
        self._columns = columns
        self._open: dict[int, File] = {}
        self.newest = Extent(0, 0)
        self.next_file = 1
        """Number of the next file of this folder, of whatever kind."""
        self._unsynced = False
        """Whether a copy may still be lost, though rows already name its place in the file."""

    # ------------------------------------------------------------------ reading

    def read(self, number: int, place: int, size: int) -> bytes:
        """The packed schedule at a place. Any thread. Raises CorruptionError."""
        if place < 0:
            return self._from_log(number, -1 - place)
        file, offset = place >> _OFFSET_BITS, place & _OFFSET_MASK
        raw = self._file(file).pread(HEADER.size + size, offset)
        packed = decode(raw, number, size)
        if packed is None:
            path = f"{self._folder}/{file_name(file)}"
            raise CorruptionError("a damaged schedule", path=path, position=offset)
        return packed

    def _from_log(self, number: int, position: int) -> bytes:
        frame = self._frame_at(position)
        members = msgpack.unpackb(frame.payload) if frame.header.kind == FrameKind.SCHEDULE else {}
        packed: bytes | None = members.get("put")
        if packed is None or msgpack.unpackb(packed)[0] != number:
            raise CorruptionError("a schedule is missing", path="log", position=position)
        return packed

    def _file(self, number: int) -> File:
        found = self._open.get(number)
        if found is None:
            path = f"{self._folder}/{file_name(number)}"
            if not self._fs.exists(path):
                raise CorruptionError("definitions of schedules are missing", path=path, position=0)
            # Another thread may have opened it meanwhile.
            made = self._fs.open(path)
            found = self._open.setdefault(number, made)
            if found is not made:
                made.close()
        return found

    # ------------------------------------------------------------------ writing

    def restore(self, newest: Extent, next_file: int) -> None:
        """Go on from a checkpoint, behind everything that is in the folder.

        A newer checkpoint that cannot be read at the moment may name it. Raises CorruptionError.
        """
        names = self._fs.listdir(self._folder) if self._fs.exists(self._folder) else []
        numbers = [int(name) for name in (each.split(".")[0] for each in names) if name.isdigit()]
        self.next_file = max([next_file, *(number + 1 for number in numbers)])
        size = self._file(newest.file).size() if newest.file else 0
        self.newest = Extent(newest.file, max(newest.end, size))

    def take_file(self) -> int:
        """A number for a new file."""
        self.next_file += 1
        return self.next_file - 1

    def store_work(self) -> Work:
        """Copy what is in the log only to the file, durably; or all that is left, to a new one."""
        columns, (file, end) = self._columns, self.newest
        if columns.count == 0:
            # What is still written is named by older checkpoints.
            self.newest = Extent(0, 0)
            return
        live = 0
        for _, block in columns.used():
            sizes = block[Column.SIZE, (block[Column.NUMBER] != 0) & (block[Column.PLACE] >= 0)]
            live += int(sizes.sum()) + HEADER.size * len(sizes)
        yield None
        if file == 0 or end > 2 * live + SPARE_BYTES:
            file = self.take_file()
            yield partial(self._begin, file)
            self.newest = Extent(file, 0)
        # Also what an earlier attempt to rewrite has left behind.
        slots = columns.where(lambda block: block[Column.PLACE] >> _OFFSET_BITS != file)
        if len(slots) == 0 and not self._unsynced:
            return
        while len(slots):
            sizes = columns.column(Column.SIZE, slots[:STEP_RECORDS])
            count = max(int(np.searchsorted(np.cumsum(sizes), STEP_BYTES)), 1)
            yield from self._copy(slots[:count])
            slots = slots[count:]
        # Also if all is copied: an earlier attempt may have failed before its sync.
        yield self._file(file).fdatasync
        self._unsynced = False

    def _begin(self, file: int) -> None:
        begin_folder(self._fs, self._folder)
        path = f"{self._folder}/{file_name(file)}"
        made = self._open[file] = self._fs.open(path, create=True)
        # An attempt that no checkpoint names may have left something.
        made.truncate(0)
        self._fs.sync_folder(self._folder)

    def _copy(self, slots: Int64Array) -> Work:
        columns, (file, end) = self._columns, self.newest
        names = (Column.NUMBER, Column.PLACE, Column.SIZE)
        lists = [slots.tolist(), *(columns.column(name, slots).tolist() for name in names)]
        # Without the slots of schedules that were dropped since the slots were listed.
        rows = [row for row in zip(*lists, strict=True) if row[1]]
        records: list[bytes] = []

        def copy() -> None:
            for _, number, place, size in rows:
                records.append(encode(number, self.read(number, place, size)))
            self._file(file).pwritev(records, end)

        yield copy
        self._unsynced = True
        for (slot, number, place, _), record in zip(rows, records, strict=True):
            row = columns.row(slot)
            # A definition that was replaced meanwhile stays where it is.
            if (row[Column.NUMBER], row[Column.PLACE]) == (number, place):
                columns.set(slot, Column.PLACE, [file << _OFFSET_BITS | end])
            end += len(record)
        self.newest = Extent(file, end)

    def log_from(self, position: int) -> int:
        """The first position of the log that definitions need; `position` if they need none."""
        slots = self._columns.where(lambda block: block[Column.PLACE] < 0)
        if len(slots) == 0:
            return position
        return -1 - int(self._columns.column(Column.PLACE, slots).max())

    def close_others(self) -> None:
        """Close files that no schedule needs any more."""
        for number in [number for number in self._open if number != self.newest.file]:
            self._open.pop(number).close()

    def close(self) -> None:
        """Close every file."""
        for file in self._open.values():
            file.close()
        self._open.clear()


# -------------------------------------------------------------- a cache of unpacked definitions

BYTES_MAX: Final = 16 << 20
"""Room for some 20,000 small definitions."""
ENTRY_BYTES: Final = 700
"""What an unpacked definition takes besides its message, about."""

_NO_PROGRESS: Final = Progress()


class DefinitionCache:
    """Schedules without progress, by number; the least recently used one goes first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[int, tuple[Schedule, int]] = OrderedDict()
        self._bytes = 0

    def get(self, number: int) -> Schedule | None:
        """A definition that is here."""
        found = self._entries.get(number)
        if found is None:
            return None
        self._entries.move_to_end(number)
        return found[0]

    def put(self, one: Schedule, size: int) -> None:
        """Enter or replace a definition whose packed form has `size` bytes."""
        self.drop(one.number)
        cost = ENTRY_BYTES + size
        if cost > BYTES_MAX // 8:
            return
        self._entries[one.number] = one.at(_NO_PROGRESS), cost
        self._bytes += cost
        while self._bytes > BYTES_MAX:
            _, (_, gone) = self._entries.popitem(last=False)
            self._bytes -= gone

    def drop(self, number: int) -> None:
        """Remove a definition if it is here."""
        found = self._entries.pop(number, None)
        if found is not None:
            self._bytes -= found[1]
