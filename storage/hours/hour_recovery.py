"""Recovery of one hour's files at a restart: checks the rows of the checkpoint, cuts later ones.

Only rows that a checkpoint counted are known to be intact. Replay restores later rows. Before these
are cut, they are used to rewind the second index if extents verify them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from crc32c import crc32c

from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File
from delaylog.storage.hours.indexes.extents import extents_upto, whole_extent
from delaylog.storage.hours.indexes.second_index import SecondIndex
from delaylog.storage.layout import (
    EXTENT,
    EXTENT_SIZE,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    TAG_COUNT,
    RowArray,
)

_EPOCHS_AHEAD_MAX: Final = 64
"""Number of epoch tags after that of a checkpoint which count as later; all others are earlier,
since tags wrap around. Each process takes a checkpoint within half a minute."""


@dataclass(frozen=True, slots=True)
class CutHour:
    """An hour's files after the cut."""

    log_size: int
    extent_count: int
    seconds: SecondIndex | None
    """The heads of the chains; None if their file was unusable, so that they must be rebuilt."""
    rewound: bool
    """Whether the heads differ from the file."""


def rows_are_missing(path: str, position: int, row_count: int) -> CorruptionError:
    """The error of a delay index that ends at byte `position`, before durable rows."""
    return CorruptionError(
        "rows are missing", path=path, position=position, detail=f"{row_count} rows were durable"
    )


def first_rows_are_before(open_file: Callable[[str], File], position: int, epoch: int) -> bool:
    """Whether frames below `position`, of epochs up to `epoch`, made the first rows.

    If the first extent is damaged, it is corrupt, or it was torn together with rows of a later
    epoch. The tag of row 1 tells which, so that corruption is never taken for a removal.
    """
    raw = open_file("extents").pread(EXTENT_SIZE, 0)
    if len(raw) == EXTENT_SIZE and whole_extent(raw):
        return int(np.frombuffer(raw, EXTENT)[0]["position_last"]) < position
    raw = open_file("delay.index").pread(INDEX_ENTRY_SIZE, 0)
    if len(raw) < INDEX_ENTRY_SIZE:
        return False
    row = np.frombuffer(raw, INDEX_ENTRY)[0]
    later = (int(row["epoch_tag"]) - epoch - 1) % TAG_COUNT < _EPOCHS_AHEAD_MAX
    return int(row["global_index"]) == 1 and not later


def cut_files(
    open_file: Callable[..., File], folder: str, hour: int, row_count: int, *, with_seconds: bool
) -> CutHour:
    """Truncate the files to the first `row_count` rows, their records and extents.

    `with_seconds` = there is a second index. Raises CorruptionError if a file is shorter than its
    durable part.
    """
    index = open_file("delay.index")
    if index.size() < row_count * INDEX_ENTRY_SIZE:
        raise rows_are_missing(f"{folder}/delay.index", index.size(), row_count)
    file = open_file("extents", create=True)
    extents, count = extents_upto(file, f"{folder}/extents", row_count)
    # The last row has this too, but verifying it would read all rows of its flush.
    last = extents[count - 1]
    log_size = int(last["log_offset"]) + int(last["log_size"])
    log = open_file("delay.log")
    if log.size() < log_size:
        raise CorruptionError(
            "bodies are missing",
            path=f"{folder}/delay.log",
            position=log.size(),
            detail=f"{log_size} bytes were durable",
        )
    seconds, rewound = None, False
    if with_seconds:
        kept = open_file("second.index")
        seconds, rewound = _rewind_seconds(kept, index, hour, row_count, extents[count:])
    index.truncate(row_count * INDEX_ENTRY_SIZE)
    log.truncate(log_size)
    file.truncate(count * EXTENT_SIZE)
    return CutHour(log_size, count, seconds, rewound)


def _rewind_seconds(
    file: File, index: File, hour: int, row_count: int, extents: RowArray
) -> tuple[SecondIndex | None, bool]:
    """The second index for the rows that stay, and whether it was rewound to them.

    Rows after the cut may be torn, so a rewind uses them only if `extents`, those after the cut,
    verify them. Otherwise the result is None, and the index is rebuilt when it is next needed.
    """
    kept = SecondIndex.decode(file.pread(file.size(), 0))
    if kept is None or kept.covers < row_count:
        return None, False
    if kept.covers == row_count:
        return kept, False
    count = kept.covers - row_count
    raw = index.pread(count * INDEX_ENTRY_SIZE, row_count * INDEX_ENTRY_SIZE)
    if len(raw) != count * INDEX_ENTRY_SIZE or not _proven(raw, extents, row_count):
        return None, False
    kept.rewind(np.frombuffer(raw, INDEX_ENTRY), hour, row_count)
    return kept, True


def _proven(raw: bytes, extents: RowArray, first: int) -> bool:
    """Whether intact extents verify the index bytes `raw`, which follow row `first`."""
    at = 0
    for one in extents:
        if at == len(raw):
            break
        size = int(one["count"]) * INDEX_ENTRY_SIZE
        follows = int(one["first_index"]) == first + at // INDEX_ENTRY_SIZE + 1
        part = raw[at : at + size]
        if not (follows and whole_extent(one.tobytes()) and crc32c(part) == int(one["index_crc"])):
            return False
        at += size
    return at == len(raw)
