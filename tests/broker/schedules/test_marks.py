"""Marks of clock changes on instants, and local times, at the changes of several zones."""

from __future__ import annotations

from datetime import datetime

import pytest

from delaylog.broker.schedules.instants import next_instant
from delaylog.broker.schedules.marks import local_time, mark_of
from delaylog.broker.schedules.timing import Timing, check_timing


def shown(timing: Timing, after: str, count: int) -> list[tuple[str, str | None]]:
    """(local time, mark) of the first instants after a time."""
    at: int | None = int(datetime.fromisoformat(after).timestamp() * 1_000)
    found = []
    for _ in range(count):
        assert at is not None
        at = next_instant(timing, at)
        assert at is not None
        found.append((local_time(timing, at), mark_of(timing, at)))
    return found


@pytest.mark.parametrize(
    ("members", "after", "expected"),
    [
        (
            {"cron": "30 2 * * *", "zone": "Europe/Berlin"},
            "2027-03-27T00:00Z",
            [
                ("2027-03-27T02:30:00+01:00", None),
                ("2027-03-28T03:00:00+02:00", "gap"),
                ("2027-03-29T02:30:00+02:00", None),
            ],
        ),
        (
            {"cron": "0 3 * * *", "zone": "Europe/Berlin"},
            "2027-03-27T12:00Z",
            [("2027-03-28T03:00:00+02:00", None)],
        ),
        (
            {"cron": "30 2 * * *", "zone": "Europe/Berlin", "fold": "both"},
            "2027-10-30T12:00Z",
            [
                ("2027-10-31T02:30:00+02:00", "first"),
                ("2027-10-31T02:30:00+01:00", "second"),
                ("2027-11-01T02:30:00+01:00", None),
            ],
        ),
        (
            # A wildcard follows elapsed time: it is in both passes, and no gap moves it.
            {"cron": "0 * * * *", "zone": "Europe/Berlin"},
            "2027-03-28T00:30Z",
            [("2027-03-28T03:00:00+02:00", None)],
        ),
        (
            # Half an hour.
            {"cron": "15 2 * * *", "zone": "Australia/Lord_Howe"},
            "2027-10-02T00:00Z",
            [("2027-10-03T02:30:00+11:00", "gap"), ("2027-10-04T02:15:00+11:00", None)],
        ),
        (
            {"interval_ms": 500, "start_ms": 0},
            "2027-01-01T00:00Z",
            [("2027-01-01T00:00:00.500+00:00", None), ("2027-01-01T00:00:01+00:00", None)],
        ),
    ],
)
def test_marks(
    members: dict[str, object], after: str, expected: list[tuple[str, str | None]]
) -> None:
    """A time that the clocks skip or repeat is marked, and no other."""
    assert shown(check_timing(members), after, len(expected)) == expected
