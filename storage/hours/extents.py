"""Extents of an hour: what each flush appended, and how it is verified before it is used.

The file `extents` has an entry for each flush. Each extent has a checksum of itself and begins
where the previous one ended. It holds the checksums of the rows and of the records of its flush.
The first read that touches a range verifies the whole range, once while the hour's files stay open;
ranges that this process appended need no check. So no reader delivers or copies a corrupt row or
body. Rows and records are verified separately: a look-up of rows does not read bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from delaylog.storage.columns import distinct, every
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File
from delaylog.storage.layout import (
    EXTENT,
    EXTENT_HOLE,
    EXTENT_MAGIC,
    EXTENT_SIZE,
    FILE_VERSION,
    INDEX_ENTRY_SIZE,
    Int64Array,
    RowArray,
)
from delaylog.storage.messages.batch import Block

# ------------------------------------------------------------------------------------- the file


def make_extent(
    rows: RowArray,
    data: Sequence[Block],
    *,
    first_index: int,
    log_offset: int,
    log_size: int,
    position_last: int,
) -> RowArray:
    """The extent of one flush, as an array of one: `rows`, numbered from `first_index`, and their
    records `data`, which are stored in the `log_size` bytes at `log_offset`.
    """
    extent = np.zeros(1, EXTENT)
    crc = 0
    for part in data:
        crc = crc32c(part, crc)
    due = rows["deliver_at"]
    extent[0] = (
        EXTENT_MAGIC,
        FILE_VERSION,
        0,
        first_index,
        len(rows),
        log_offset,
        log_size,
        crc32c(rows.view(np.uint8).data),
        crc,
        int(due.min()),
        int(due.max()),
        int(np.bitwise_or.reduce(np.uint64(1) << (rows["topic"] % 64).astype(np.uint64))),
        int(np.bitwise_or.reduce(rows["tag_mask"])),
        int(rows["sent_position"][0]),
        position_last,
        b"",
        0,
    )
    seal_extent(extent)
    return extent


def seal_extent(extent: RowArray) -> None:
    """Set the checksum of an extent (an array of one) after a change of its fields."""
    extent["crc"] = crc32c(extent.tobytes()[:-4])


def whole_extent(raw: bytes | memoryview) -> bool:
    """Whether the bytes of one extent are intact."""
    one = np.frombuffer(raw, EXTENT)[0]
    return bool(
        one["magic"] == EXTENT_MAGIC
        and one["version"] == FILE_VERSION
        and crc32c(bytes(raw[:-4])) == int(one["crc"])
    )


def sound_extents(raw: bytes) -> tuple[RowArray, str]:
    """The extents before the first bad one, and what is wrong with that one, or "".

    A sound one is intact and begins where the one before ends.
    """
    extents = np.frombuffer(raw[: len(raw) // EXTENT_SIZE * EXTENT_SIZE], EXTENT)
    view = memoryview(raw)
    starts = range(0, len(extents) * EXTENT_SIZE, EXTENT_SIZE)
    crcs = [crc32c(view[at : at + EXTENT_SIZE - 4]) for at in starts]
    whole = (extents["magic"] == EXTENT_MAGIC) & (extents["version"] == FILE_VERSION)
    whole &= extents["crc"] == np.array(crcs, np.uint32)
    counts, sizes = extents["count"].astype(np.int64), extents["log_size"].astype(np.int64)
    good = whole & (extents["first_index"] == np.cumsum(counts) - counts + 1)
    good &= extents["log_offset"] == (np.cumsum(sizes) - sizes).astype(np.uint64)
    if every(good):
        return extents, ""
    bad = int(np.flatnonzero(~good)[0])
    what = "an extent that does not follow the one before" if whole[bad] else "a damaged extent"
    return extents[:bad], what


def read_extents(file: File, count: int, path: str) -> RowArray:
    """The first `count` extents. Raises CorruptionError if one is damaged, missing or misplaced."""
    raw = file.pread(count * EXTENT_SIZE, 0)
    extents, wrong = sound_extents(raw)
    if wrong:
        raise CorruptionError(wrong, path=path, position=len(extents) * EXTENT_SIZE)
    if len(extents) < count:
        raise CorruptionError("extents are missing", path=path, position=len(raw))
    return extents


def extents_upto(file: File, path: str, row_count: int) -> tuple[RowArray, int]:
    """All extents, and how many of them cover exactly `row_count` rows.

    A flush never straddles a checkpoint. Only the last of these extents is verified here, so that
    the cost of opening a folder does not grow with its size. Raises CorruptionError.
    """
    raw = file.pread(file.size() // EXTENT_SIZE * EXTENT_SIZE, 0)
    extents = np.frombuffer(raw, EXTENT)
    covered = np.cumsum(extents["count"].astype(np.int64))
    at = int(np.searchsorted(covered, row_count))
    if at >= len(covered) or int(covered[at]) != row_count:
        raise CorruptionError(
            "extents that do not cover the rows",
            path=path,
            position=min(at, len(covered)) * EXTENT_SIZE,
            detail=f"{row_count} rows",
        )
    if not whole_extent(raw[at * EXTENT_SIZE : (at + 1) * EXTENT_SIZE]):
        raise CorruptionError("a damaged extent", path=path, position=at * EXTENT_SIZE)
    return extents, at + 1


# ---------------------------------------------------------------------- verification before use

_READ_BYTES: Final = 4 << 20


def range_crc(file: File, offset: int, size: int) -> int:
    """Checksum of a range, read in parts; if the file is shorter, of the bytes that exist."""
    crc = 0
    for at in range(offset, offset + size, _READ_BYTES):
        crc = crc32c(file.pread(min(_READ_BYTES, offset + size - at), at), crc)
    return crc


class _Ranges:
    """The ranges of one file, and which of them have been checked.

    Two threads may check at a time. If one overwrites the mark of the other, the range is checked
    again; `whole` never counts a range that was not checked.
    """

    def __init__(
        self,
        starts: Int64Array,
        sizes: Int64Array,
        crcs: Int64Array,
        good_from: int,
        holes: npt.NDArray[np.bool_],
    ) -> None:
        """`holes` = ranges whose rows were all removed: not checked."""
        self.starts = starts
        self.sizes = sizes
        self.crcs = crcs
        self.holes = holes
        self.good = (np.arange(len(starts)) >= good_from) | holes
        self._first_bad = 0

    def append(self, start: int, size: int, crc: int) -> None:
        """Add a range that this process wrote."""
        self.starts = np.append(self.starts, start)
        self.sizes = np.append(self.sizes, size)
        self.crcs = np.append(self.crcs, crc)
        self.good = np.append(self.good, True)
        self.holes = np.append(self.holes, False)

    @property
    def whole(self) -> bool:
        """Whether every range has been verified."""
        at, good = self._first_bad, self.good
        if at == len(good):
            return True
        while at < len(good) and good[at]:
            at += 1
        self._first_bad = at
        return at == len(good)

    def bad_in(self, first: int, last: int) -> list[int]:
        """Numbers of unchecked ranges among those that cover [first, last]."""
        a = int(np.searchsorted(self.starts, first, side="right")) - 1
        b = int(np.searchsorted(self.starts, last, side="right"))
        found: list[int] = (np.flatnonzero(~self.good[max(a, 0) : b]) + max(a, 0)).tolist()
        return found

    def bad_of(self, places: Int64Array) -> list[int]:
        """Numbers of unchecked ranges that cover some of `places`."""
        which = distinct(np.searchsorted(self.starts, places, side="right") - 1)
        found: list[int] = which[~self.good[which]].tolist()
        return found


class ExtentChecks:
    """The ranges of one hour's delay index and delay log, and which of them are verified."""

    def __init__(
        self,
        open_file: Callable[[str], File],
        folder: str,
        extents: RowArray,
        *,
        good_from: int,
    ) -> None:
        """Extents from number `good_from` on were written by this process."""
        self._open_file = open_file
        self._folder = folder
        size = INDEX_ENTRY_SIZE
        column = {name: extents[name].astype(np.int64) for name in _COLUMNS}
        holes = extents["flags"] & EXTENT_HOLE != 0
        self._index = _Ranges(
            (column["first_index"] - 1) * size,
            column["count"] * size,
            column["index_crc"],
            good_from,
            holes,
        )
        self._log = _Ranges(
            column["log_offset"], column["log_size"], column["log_crc"], good_from, holes
        )

    @property
    def count(self) -> int:
        """Number of extents; the hour may have more, which this process flushed meanwhile."""
        return len(self._log.good)

    def append(self, extent: RowArray) -> None:
        """Add an extent that this process has just flushed."""
        size = INDEX_ENTRY_SIZE
        self._index.append(
            (int(extent["first_index"]) - 1) * size,
            int(extent["count"]) * size,
            int(extent["index_crc"]),
        )
        self._log.append(int(extent["log_offset"]), int(extent["log_size"]), int(extent["log_crc"]))

    @property
    def whole(self) -> bool:
        """Whether everything has been checked."""
        return self._index.whole and self._log.whole

    def rows_between(self, low: int, high: int) -> None:
        """Check rows low..high, if not done yet. As all checks, raises CorruptionError."""
        if not self._index.whole:
            size = INDEX_ENTRY_SIZE
            for number in self._index.bad_in((low - 1) * size, (high - 1) * size):
                self._check("delay.index", self._index, number)

    def rows(self, indexes: Int64Array) -> None:
        """Check these rows, if not done yet."""
        if not self._index.whole:
            for number in self._index.bad_of((indexes - 1) * INDEX_ENTRY_SIZE):
                self._check("delay.index", self._index, number)

    def records(self, starts: Int64Array) -> None:
        """Check the records that begin at these offsets, if not done yet."""
        for number in self.unchecked_records(starts):
            self.check_records(number)

    def unchecked_records(self, starts: Int64Array) -> list[int]:
        """Extents that `records` would check, for a caller that checks them on another thread."""
        return [] if self._log.whole or len(starts) == 0 else self._log.bad_of(starts)

    def unchecked_rows(self) -> list[int]:
        """Extents whose rows were not checked yet."""
        return [] if self._index.whole else np.flatnonzero(~self._index.good).tolist()

    def check_rows(self, number: int) -> int:
        """Check the rows of one extent on any thread; returns the number of bytes read."""
        return self._check("delay.index", self._index, number)

    def check_records(self, number: int) -> int:
        """Check the records of one extent on any thread; returns the number of bytes read."""
        return self._check("delay.log", self._log, number)

    def _check(self, name: str, ranges: _Ranges, number: int) -> int:
        if ranges.holes[number]:
            return 0
        start, size = int(ranges.starts[number]), int(ranges.sizes[number])
        if range_crc(self._open_file(name), start, size) != int(ranges.crcs[number]):
            raise CorruptionError(
                "bytes with a wrong checksum",
                path=f"{self._folder}/{name}",
                position=start,
                detail=f"within {size} bytes from there",
            )
        ranges.good[number] = True
        return size


_COLUMNS: Final = ("first_index", "count", "log_offset", "log_size", "index_crc", "log_crc")
