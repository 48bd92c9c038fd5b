"""The file `extents` of an hour: an entry for each flush, with the ranges of its rows and records.

Each extent has a checksum of itself and begins where the previous one ended. Its checksums of rows
and records are compared with the files by `ExtentChecks`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from crc32c import crc32c

from delaylog.storage.columns.questions import every
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File
from delaylog.storage.layout import EXTENT, EXTENT_MAGIC, EXTENT_SIZE, FILE_VERSION, RowArray
from delaylog.storage.messages.batch import Block


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
