"""Copies of hot seconds in dispatch order.

An hour's files have rows and records in log order, so the messages of one second are scattered over
them. If a second has many messages, a worker copies its rows and records into a scratch file in
dispatch order, before they are due. A receive of ten thousand messages then reads two ranges
instead of twenty thousand pages. A copy is a cache: rows that it lacks are read from the hour, and
a restart discards it. A damaged part of a copy counts as missing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from delaylog.storage.columns import (
    copy_rows,
    distinct,
    every,
    parts_of,
    put_rows,
    read_spans,
    scatter_back,
    some,
    take_rows,
)
from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.hours.hour_reader import HourReader
from delaylog.storage.layout import (
    HOUR_SHIFT,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_MASK,
    Int64Array,
    RowArray,
)

HOT_BYTES_MAX: Final = 1 << 30
"""Disk for copies: they are removed at a start, and a second without one is read from its hour."""
HOT_ROWS_MIN: Final = 8_192
"""Messages that make a second hot. A topic is copied if it has at least an eighth."""
_SLICE_ROWS: Final = 4_096
_SUM_ROWS: Final = 512
_SUM_BYTES: Final = 1 << 20
"""At most this number of rows, and about this much of records, are copied at once and have a common
checksum, which the first receive of them verifies on the loop."""
_LOOK_AROUND_ROWS: Final = 4_096
_COPIED: Final = np.uint64(1 << 63)
"""Flag in the `offset` of a row from a copy; below it are the copy's number and the record's
offset in the copy's file.
"""
_NUMBER_SHIFT: Final = np.uint64(44)
_NUMBERS: Final = 1 << 19
_PLACE_MASK: Final = np.uint64((1 << 44) - 1)

IoJob = Callable[[], None]
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class _Stretch:
    """The rows of one topic: [start, end) of a copy, delivered up to `next`."""

    start: int
    end: int
    next: int


class _Copy:
    """One second's scratch file: rows first, then records."""

    def __init__(
        self, fs: FileSystem, path: str, number: int, second: int, refs: Int64Array
    ) -> None:
        self._fs = fs
        self._path = path
        self.number = number
        self.second = second
        self.refs = refs
        self.topics: dict[int, _Stretch] = {}
        self.size = len(refs) * INDEX_ENTRY_SIZE
        self.built = 0
        self.full = False
        """Whether the next rows had no room."""
        self.building = True
        self.dropped = False
        self._part_starts: list[int] = []
        self._sums: list[tuple[int, int, int, int, int]] = []
        """For each part: number of rows, offset and size of its records, checksums of both."""
        self._sound: dict[int, bool] = {}
        self._file: File = fs.open(path, create=True)

    def add_slice(self, reader: HourReader, at: int, room: int) -> None:
        """Copy rows [at, at + _SLICE_ROWS) and their records, unless the file would be larger than
        `room`. Any thread, one call at a time.
        """
        rows = copy_rows(reader.rows(self.refs[at : at + _SLICE_ROWS] & INDEX_MASK))
        sizes = rows["size"].astype(np.int64)
        if self.size + int(sizes.sum()) > room:
            self.full = True
            return
        for part in parts_of(sizes, _SUM_ROWS, _SUM_BYTES):
            self._add_part(reader, at + part.start, take_rows(rows, part))

    def _add_part(self, reader: HourReader, at: int, rows: RowArray) -> None:
        data = reader.records(rows)
        size = rows["size"].astype(np.uint64)
        starts = np.cumsum(size) + np.uint64(self.size) - size
        rows["offset"] = _COPIED | np.uint64(self.number) << _NUMBER_SHIFT | starts
        if data:
            self._file.pwritev([data], self.size)
        raw = rows.view(np.uint8).data
        self._file.pwritev([raw], at * INDEX_ENTRY_SIZE)
        self._sums.append((len(rows), self.size, len(data), crc32c(raw), crc32c(data)))
        self._part_starts.append(at)
        self.size += len(data)

    def find(self, topic: int, wanted: Int64Array) -> tuple[Mask | None, RowArray] | None:
        """The rows of `wanted` that this copy has: (their mask, None = all; rows), or None."""
        stretch = self.topics.get(topic)
        if stretch is None:
            return None
        last = min(stretch.end, self.built)
        at, n = stretch.next, len(wanted)
        if at + n <= last and every(self.refs[at : at + n] == wanted):
            stretch.next = at + n
            rows = self._rows(at, n)
            return None if rows is None else (None, rows)
        # Some messages were cancelled, sent late or delivered again: search near `next`.
        low = max(at - 2 * n, stretch.start)
        window = self.refs[low : min(at + 2 * n + _LOOK_AROUND_ROWS, last)]
        hits = np.flatnonzero(np.isin(window, wanted))
        if len(hits) == 0:
            return None
        mask = np.isin(wanted, window[hits])
        if int(np.count_nonzero(mask)) != len(hits) or some(wanted[mask] != window[hits]):
            return None
        first, end = low + int(hits[0]), low + int(hits[-1]) + 1
        stretch.next = max(at, end)
        rows = self._rows(first, end - first)
        return None if rows is None else (mask, rows[hits - hits[0]])

    def pass_by(self, topic: int) -> None:
        """Skip the rest of a topic: later seconds are being delivered, so it has ended."""
        stretch = self.topics.get(topic)
        if stretch is not None:
            stretch.next = stretch.end

    @property
    def read(self) -> bool:
        """Whether all of its rows have been delivered."""
        if self.building:
            return False
        return all(s.next >= min(s.end, self.built) for s in self.topics.values())

    def _rows(self, at: int, count: int) -> RowArray | None:
        if not self._checked(at, at + count - 1):
            return None
        raw = self._file.pread(count * INDEX_ENTRY_SIZE, at * INDEX_ENTRY_SIZE)
        return np.frombuffer(raw, INDEX_ENTRY)

    def _checked(self, first_row: int, last_row: int) -> bool:
        """Whether the parts with these rows are intact. Each part is verified once."""
        first = bisect_right(self._part_starts, first_row) - 1
        last = bisect_right(self._part_starts, last_row) - 1
        for number in range(first, last + 1):
            if number not in self._sound:
                count, place, size, rows_crc, data_crc = self._sums[number]
                at = self._part_starts[number] * INDEX_ENTRY_SIZE
                rows = self._file.pread(count * INDEX_ENTRY_SIZE, at)
                sound = crc32c(rows) == rows_crc
                self._sound[number] = sound and crc32c(self._file.pread(size, place)) == data_crc
        return all(self._sound[number] for number in range(first, last + 1))

    def records(self, rows: RowArray) -> bytes:
        """Records of rows that `find` returned."""
        starts = (rows["offset"] & _PLACE_MASK).astype(np.int64)
        return read_spans(self._file.pread, starts, rows["size"].astype(np.int64), gap=65_536)

    def close(self) -> None:
        """Remove the file; if a worker still writes it, `finish` removes it."""
        self.dropped = True
        if not self.building:
            self._file.close()
            self._fs.unlink(self._path)

    def finish(self) -> None:
        """Note that the worker has stopped writing the file."""
        self.building = False
        if self.dropped:
            self.close()


class HotSeconds:
    """The copies of a node, in at most `bytes_max` of disk.

    `folder` is for scratch files; it is emptied when the node starts.
    """

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        *,
        rows_min: int = HOT_ROWS_MIN,
        bytes_max: int,
    ) -> None:
        self.rows_min = rows_min
        self._fs = fs
        self._folder = folder
        self._bytes_max = bytes_max
        self._copies: dict[int, _Copy] = {}
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._copies)

    @property
    def size_bytes(self) -> int:
        """Disk in use."""
        return sum(copy.size for copy in self._copies.values())

    def lay_out(
        self,
        second: int,
        refs: Int64Array,
        topics: Int64Array,
        hour: DelayHour,
        *,
        free_bytes: int,
        in_time: Callable[[], bool],
    ) -> Generator[IoJob | None, None, None]:
        """Copy a second while `in_time()`: `refs` in dispatch order and the topic of each.

        All of them are in the files of `hour`. Yields jobs for one worker thread. When time or room
        runs out, the part copied so far is kept.
        """
        order = np.argsort(topics, kind="stable")
        order = order[_of_large_groups(topics[order], max(self.rows_min // 8, 1))]
        if len(order) < self.rows_min or self._next_number % _NUMBERS in self._copies:
            return
        refs, topics = refs[order], topics[order]
        room = min(self._bytes_max - self.size_bytes, free_bytes)
        if len(refs) * INDEX_ENTRY_SIZE > room:
            return
        number = self._next_number % _NUMBERS
        self._next_number += 1
        copy = _Copy(self._fs, f"{self._folder}/{second}-{number}.hot", number, second, refs)
        cuts = np.flatnonzero(topics[1:] != topics[:-1]) + 1
        starts, ends = [0, *cuts.tolist()], [*cuts.tolist(), len(refs)]
        for start, end in zip(starts, ends, strict=True):
            copy.topics[int(topics[start])] = _Stretch(start, end, start)
        self._copies[number] = copy
        # The loop reads the same files meanwhile, through other maps.
        files: dict[str, File] = {}
        reader = HourReader(files.__getitem__, hour.folder)
        reader.row_count, reader.log_size = hour.row_count, hour.log_size
        reader.mapped = True
        try:
            for name in _SOURCES:
                files[name] = self._fs.open(f"{hour.folder}/{name}")
            for at in range(0, len(refs), _SLICE_ROWS):

                def job(at: int = at) -> None:
                    copy.add_slice(reader, at, room)

                yield job
                if copy.full:
                    break
                copy.built = min(at + _SLICE_ROWS, len(refs))
                if copy.dropped or not in_time():
                    break
        finally:
            reader.unmap()
            for file in files.values():
                file.close()
            copy.finish()

    def rows(
        self, topic: int, refs: Int64Array, now_ms: int
    ) -> tuple[Mask | None, RowArray] | None:
        """The rows of refs that are about to be delivered, as far as copies have them.

        (mask of the refs that were found, None = all of them; their rows), or None. Only
        `HotSeconds.records` understands the `offset` of these rows.
        """
        got: list[tuple[Int64Array, RowArray]] = []
        left = np.arange(len(refs))
        passed: list[_Copy] = []
        for copy in sorted(self._copies.values(), key=lambda copy: copy.second):
            if copy.second * 1000 > now_ms:
                break
            found = copy.find(topic, refs[left])
            if found is None:
                passed.append(copy)
                continue
            for earlier in passed:
                earlier.pass_by(topic)
            mask, rows = found
            if mask is None:
                if not got:
                    return None, rows
                mask = np.ones(len(left), np.bool_)
            got.append((left[mask], rows))
            left = left[~mask]
            if len(left) == 0:
                break
        if not got:
            return None
        out = np.zeros(len(refs), INDEX_ENTRY)
        mask = np.zeros(len(refs), np.bool_)
        for places, rows in got:
            put_rows(out, places, rows)
            mask[places] = True
        return mask, take_rows(out, mask)

    @staticmethod
    def copied(rows: RowArray) -> Mask:
        """Which rows came from a copy."""
        return rows["offset"] >= _COPIED

    def records(self, rows: RowArray) -> bytes:
        """Records of rows that `rows` returned, one after another."""
        numbers = ((rows["offset"] & ~_COPIED) >> _NUMBER_SHIFT).astype(np.int64)
        parts: list[bytes] = []
        places: list[Int64Array] = []
        for number in distinct(numbers).tolist():
            mask = numbers == number
            parts.append(self._copies[number].records(take_rows(rows, mask)))
            places.append(np.flatnonzero(mask))
        return scatter_back(parts, places, rows["size"].astype(np.int64))

    def drop_read(self) -> None:
        """Drop the copies whose rows have all been delivered.

        Do not call this between `rows` and `records`, which reads the records of these rows.
        """
        for copy in list(self._copies.values()):
            if copy.read:
                self._drop(copy)

    def _drop(self, copy: _Copy) -> None:
        del self._copies[copy.number]
        copy.close()

    def drop_hour(self, hour: int) -> None:
        """Drop the copies of an hour that is removed."""
        for copy in list(self._copies.values()):
            if int(copy.refs[0]) >> HOUR_SHIFT == hour:
                self._drop(copy)

    def clear(self) -> None:
        """Drop every copy, to free disk space."""
        for copy in list(self._copies.values()):
            self._drop(copy)

    def close(self) -> None:
        """Drop every copy and make no more: work in progress ends with its slice."""
        self._bytes_max = 0
        self.clear()


_SOURCES: Final = ("delay.index", "delay.log")


def _of_large_groups(topics: Int64Array, rows_min: int) -> Mask:
    """Mask of the rows of topics that have at least `rows_min` rows. `topics` is sorted."""
    cuts = np.flatnonzero(topics[1:] != topics[:-1]) + 1
    lengths = np.diff(np.concatenate([[0], cuts, [len(topics)]]))
    return np.repeat(lengths >= rows_min, lengths)
