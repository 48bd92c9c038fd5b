"""Local times with their marks: a year of 02:30 in Berlin, and what follows elapsed time."""

from __future__ import annotations

import pytest

from delaylog.broker.rules.schedules.instants import LocalTime, local_time, next_instant
from delaylog.broker.rules.schedules.timing import Timing

YEAR_MS = 1_798_761_600_000
"""2027 begins, in UTC."""


def marked(timing: Timing) -> list[LocalTime]:
    """The marked instants of 2027."""
    out, at = [], next_instant(timing, YEAR_MS)
    while at is not None and at < YEAR_MS + 365 * 86_400_000:
        found = local_time(timing, at)
        if found.mark:
            out.append(found)
        at = next_instant(timing, at)
    return out


@pytest.mark.parametrize(
    ("timing", "found"),
    [
        (
            Timing(cron="30 2 * * *", zone="Europe/Berlin", fold="both"),
            [
                LocalTime("2027-03-28T03:00:00+02:00", "moved"),
                LocalTime("2027-10-31T02:30:00+02:00", "repeated"),
                LocalTime("2027-10-31T02:30:00+01:00", "repeated"),
            ],
        ),
        (
            Timing(rrule="FREQ=DAILY;BYHOUR=2", zone="Europe/Berlin", start_ms=YEAR_MS),
            [
                LocalTime("2027-03-28T03:00:00+02:00", "moved"),
                LocalTime("2027-10-31T02:00:00+02:00", "repeated"),
            ],
        ),
        (
            Timing(cron="0 */2 * * *", zone="Australia/Lord_Howe"),
            [],
        ),
        (Timing(cron="30 2 * * *", zone="Asia/Tokyo"), []),
    ],
)
def test_marks_are_where_the_clocks_change(timing: Timing, found: list[LocalTime]) -> None:
    """All marked instants of a year."""
    assert marked(timing) == found


def test_an_interval_keeps_its_milliseconds() -> None:
    """In the zone, although it follows elapsed time."""
    timing = Timing(interval_ms=1_500, start_ms=YEAR_MS, zone="Asia/Kathmandu")
    found = local_time(timing, YEAR_MS + 1_500)
    assert found == LocalTime("2027-01-01T05:45:01.500+05:45", "")
