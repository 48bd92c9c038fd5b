"""Sorted runs: immutable files of keys and refs.

A run is written once, in the order of its keys, and never changed; a merge writes a new one. The
number of entries need not be known in advance: the refs begin behind the room for the most keys
that there may be, and the unused part of this room is a hole in the file.

    0       _HEADER (64): magic u32, version u16, 2 zeros, count u64, room u64, crc32c u32 of the
            keys, of the refs, and of this header with zeros in place of the last one; 28 zeros
    64      keys u64, ascending
    64+8r   refs i64 in the same order, where r is the room; 0 = the id with this key was forgotten
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.layout import Int64Array

KeyArray = npt.NDArray[np.uint64]
_HEADER: Final = struct.Struct("<IH2xQQIII28x")
assert _HEADER.size == 64
_MAGIC: Final = 0x52494C44  # "DLIR"
_VERSION: Final = 1
_WIDTH: Final = 8
SLICE_ENTRIES: Final = 32_768
"""Entries that one job reads, sorts or writes: at most 10 ms of work."""


class RunWriter:
    """Writes a run; on any thread, one call at a time."""

    def __init__(self, fs: FileSystem, path: str, room: int) -> None:
        """`room` = most entries of the run. A file that an earlier attempt left is overwritten."""
        self._file = fs.open(path, create=True)
        self._room = room
        self._crcs = [0, 0]
        self.count = 0

    def add(self, keys: KeyArray, refs: Int64Array) -> None:
        """Append the next entries, in the order of their keys."""
        starts = (_HEADER.size, _HEADER.size + self._room * _WIDTH)
        for which, column in enumerate((keys.astype("<u8"), refs.astype("<i8"))):
            raw = column.tobytes()
            if raw:
                at = starts[which] + self.count * _WIDTH
                self._file.pwritev([raw], at)
                self._file.begin_writing(at, len(raw))
                self._crcs[which] = crc32c(raw, self._crcs[which])
        self.count += len(keys)
        assert self.count <= self._room, "a run has at most as many entries as it has room for"

    def finish(self) -> None:
        """Make the run's bytes durable; its name becomes durable when the folder is synced."""
        head = (_MAGIC, _VERSION, self.count, self._room, *self._crcs)
        self._file.truncate(_HEADER.size + (self._room + self.count) * _WIDTH)
        self._file.pwritev([_HEADER.pack(*head, crc32c(_HEADER.pack(*head, 0)))], 0)
        self._file.fdatasync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class KeyRun:
    """A run, mapped into memory; `rest` releases its resident pages."""

    def __init__(
        self, fs: FileSystem, path: str, number: int = 0, count: int | None = None
    ) -> None:
        """`count` = the entries that the run must have, if known. Only the header is verified.

        Raises CorruptionError if the header is damaged; `check` verifies the rest.
        """
        self.number = number
        self._path = path
        with closing(fs.open(path)) as file:
            self.size = file.size()
            raw = file.pread(_HEADER.size, 0)
            fields = _HEADER.unpack(raw) if len(raw) == _HEADER.size else (0,) * 7
            magic, version, stored, room, self._keys_crc, self._refs_crc, crc = fields
            self.count = count = stored if count is None else count
            whole = (magic, version, stored) == (_MAGIC, _VERSION, count)
            whole = whole and raw == _HEADER.pack(*fields)
            whole = whole and crc == crc32c(_HEADER.pack(*fields[:-1], 0))
            if not whole or count < 1 or self.size != _HEADER.size + (room + count) * _WIDTH:
                raise CorruptionError("a damaged run of ids", path=path, position=0)
            self._map = file.map_read(0, self.size)
        self._refs_start = _HEADER.size + room * _WIDTH
        self.keys: KeyArray = np.frombuffer(self._map.buffer, "<u8", count, _HEADER.size)
        """A view of the mapped file."""
        self.refs: Int64Array = np.frombuffer(self._map.buffer, "<i8", count, self._refs_start)

    def slices(self) -> Iterator[tuple[KeyArray, Int64Array]]:
        """Keys and refs, part by part, as views; the pages of a part are released after it."""
        for first in range(0, self.count, SLICE_ENTRIES):
            part = slice(first, first + SLICE_ENTRIES)
            yield self.keys[part], self.refs[part]
            self.rest()

    def check(self, fs: FileSystem) -> Iterator[KeyArray]:
        """Yield the keys, part by part, then raise CorruptionError if a checksum is wrong.

        The file is read, not accessed through the map, where a bad sector would kill the process.
        """
        with closing(fs.open(self._path)) as file:
            for start, wanted in (
                (_HEADER.size, self._keys_crc),
                (self._refs_start, self._refs_crc),
            ):
                crc = 0
                for first in range(0, self.count, SLICE_ENTRIES):
                    size = min(SLICE_ENTRIES, self.count - first) * _WIDTH
                    raw = file.pread(size, start + first * _WIDTH)
                    crc = crc32c(raw, crc)
                    if start == _HEADER.size:
                        yield np.frombuffer(raw, "<u8")
                if crc != wanted:
                    raise CorruptionError("a damaged run of ids", path=self._path, position=start)

    def find(self, keys: KeyArray) -> tuple[Int64Array, Int64Array]:
        """(places of the keys found here, their refs); ascending keys share pages."""
        at = np.searchsorted(self.keys, keys)
        at[at == self.count] = 0
        places = np.flatnonzero(self.keys[at] == keys)
        return places, self.refs[at[places]]

    def rest(self) -> None:
        """Release the pages of the map, since they count as resident memory."""
        self._map.forget(0, self.size)

    def close(self) -> None:
        """Unmap."""
        self.keys, self.refs = self.keys[:0].copy(), self.refs[:0].copy()
        self._map.close()


def entries_between(runs: Sequence[KeyRun], first: int, last: int) -> tuple[KeyArray, Int64Array]:
    """The keys from `first` to `last`, both included, and their refs, run by run."""
    parts = []
    for run in runs:
        start = int(np.searchsorted(run.keys, np.uint64(first)))
        stop = int(np.searchsorted(run.keys, np.uint64(last), side="right"))
        parts.append((run.keys[start:stop], run.refs[start:stop]))
    keys = np.concatenate([part[0] for part in parts])
    refs = np.concatenate([part[1] for part in parts])
    for run in runs:
        run.rest()
    return keys, refs
