"""Distinguishes corruption of a second index from the state that a power cut may leave.

The file is written in place, so after a power cut some sectors may be old. Then the header and each
entry belong to one of several versions of the file, all of which can be computed from the rows. Any
other content is damage.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from delaylog.storage.hours.indexes.second_index import rebuild
from delaylog.storage.layout import (
    FILE_HEADER,
    FILE_HEADER_SIZE,
    HOUR_SECONDS,
    SECOND_ENTRY,
    SECOND_ENTRY_SIZE,
    Int64Array,
    RowArray,
)
from delaylog.storage.messages.rows import seconds_of

ReadRows = Callable[[int, int], RowArray]
"""Rows first..last of the delay index."""
_PART_ROWS = 65_536


def judge_second_index(
    raw: bytes, hour: int, row_count: int, read_rows: ReadRows
) -> tuple[int, str] | None:
    """(offset, what is wrong) of a file that cannot be decoded; None if it is merely torn."""
    if len(raw) > FILE_HEADER_SIZE + HOUR_SECONDS * SECOND_ENTRY_SIZE:
        return 0, f"the file is too large: {len(raw)} bytes"
    head = raw[:FILE_HEADER_SIZE]
    if any(head):
        covers = FILE_HEADER.unpack(head.ljust(FILE_HEADER_SIZE, b"\0"))[3]
        if covers > row_count:
            return 0, f"the header says that it covers {covers} rows, of {row_count}"
        parts = [
            (read_rows(first, min(first + _PART_ROWS - 1, covers)), hour)
            for first in range(1, covers + 1, _PART_ROWS)
        ]
        if rebuild(parts).encode()[:FILE_HEADER_SIZE] != head:
            return 0, "the header does not match the rows"
    whole = (len(raw) - FILE_HEADER_SIZE) // SECOND_ENTRY_SIZE
    if whole <= 0:
        return None
    entries = np.frombuffer(raw, SECOND_ENTRY, whole, FILE_HEADER_SIZE)
    newest, count = entries["newest"].astype(np.uint64), entries["count"].astype(np.uint64)
    sound = (newest == 0) & (count == 0)
    inside = np.flatnonzero((newest >= 1) & (newest <= np.uint64(row_count)))
    for second in inside.tolist():
        row = read_rows(int(newest[second]), int(newest[second]))
        places: Int64Array = seconds_of(row, hour)
        sound[second] = places[0] == second and int(row["local_index"][0]) == int(count[second])
    if sound.all():
        return None
    second = int(np.flatnonzero(~sound)[0])
    where = FILE_HEADER_SIZE + second * SECOND_ENTRY_SIZE
    return where, f"second {second}: an entry that matches no version of the file"
