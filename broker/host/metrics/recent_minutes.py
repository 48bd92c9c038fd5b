"""The lateness of hand-outs in the last minutes, from the file of minutes, for the overview.

It reads the slots of these minutes alone: all of the file is 10 MiB.
"""

from __future__ import annotations

import os
from typing import Final

from delaylog.broker.engine.watch.lateness import BOUNDS_MS
from delaylog.broker.host.metrics.minutes import FILE, MINUTE_MS, SLOT_BYTES, SLOTS, decode_row

RECENT: Final = 90
"""Minutes."""


def recent_lateness(folder: str, now_ms: int) -> list[dict[str, int | list[int]]]:
    """`from_ms` and `counts` by bucket of each recent minute that has a row; blocking.

    A folder without the file has none: an embedded broker writes no rows.
    """
    try:
        file = os.open(f"{folder}/{FILE}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    last = now_ms // MINUTE_MS
    found: list[dict[str, int | list[int]]] = []
    try:
        for minute in range(last - RECENT, last + 1):
            row = decode_row(os.pread(file, SLOT_BYTES, minute % SLOTS * SLOT_BYTES))
            if row is not None and row.minute == minute and len(row.out_late) > len(BOUNDS_MS):
                found.append({"from_ms": minute * MINUTE_MS, "counts": row.out_late})
    finally:
        os.close(file)
    return found
