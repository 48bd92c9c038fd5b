"""The lateness of the last minutes: rows of the ring that are not older, in order."""

from __future__ import annotations

from pathlib import Path

from delaylog.broker.engine.watch.lateness import BOUNDS_MS
from delaylog.broker.host.metrics.minutes import MINUTE_MS, SLOTS, MinuteRow, write_row
from delaylog.broker.host.metrics.recent_minutes import RECENT, recent_lateness

NOW = 29_000_000
NOW_MS = NOW * MINUTE_MS + 59_999


def counts(first: int) -> list[int]:
    return [first, *[0] * len(BOUNDS_MS)]


def test_recent_rows_in_order(tmp_path: Path) -> None:
    """Rows of a week before are in the slots of minutes without one, and are left out."""
    folder = str(tmp_path)
    for minute in (NOW, NOW - 1, NOW - RECENT, NOW - RECENT - 1, NOW - 5 - SLOTS, NOW + 1):
        write_row(folder, MinuteRow(minute=minute, run=1, out_late=counts(minute % 97)))
    write_row(folder, MinuteRow(minute=NOW - 3, run=1, out_late=[]))
    assert recent_lateness(folder, NOW_MS) == [
        {"from_ms": minute * MINUTE_MS, "counts": counts(minute % 97)}
        for minute in (NOW - RECENT, NOW - 1, NOW)
    ]


def test_a_folder_without_minutes_has_none(tmp_path: Path) -> None:
    assert recent_lateness(str(tmp_path), NOW_MS) == []
