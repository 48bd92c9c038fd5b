"""The next instant: order, start and end, timings that never fire, changed zone data, and how an
instant is shown on the wall clock."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.rules.schedules.instants import (
    LocalTime,
    instants_of,
    local_time,
    next_instant,
    next_instant_after_change,
    wall_s,
)
from delaylog.broker.rules.schedules.timing import Timing, check_timing
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.contract.calls.schedules import INSTANT_MS_MAX
from delaylog.contract.members import MemberError
from tests.broker.rules.schedules.walk import walk

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def ms(text: str) -> int:
    """An instant of its text in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


def zones_without(*names: str, version: str = "2099a") -> Zones:
    """A release that lacks these zones."""
    return Zones(version, PACKAGED.names - set(names), PACKAGED.zone)


def zones_where(berlin: str, version: str = "2099a") -> Zones:
    """A later release, in which Berlin has the clocks of another zone."""

    def load(name: str) -> ZoneInfo:
        return PACKAGED.zone(berlin if name == "Europe/Berlin" else name)

    return Zones(version, PACKAGED.names, load)


@given(st.integers(1, 10**9), st.integers(0, 10**12), st.integers(0, 2 * 10**12))
def test_an_interval_is_an_arithmetic_series(step: int, start: int, after: int) -> None:
    """The first start + k * step after a time, k >= 0."""
    found = next_instant(Timing(interval_ms=step, start_ms=start), after)
    assert found is not None
    assert (found - start) % step == 0
    assert found >= start
    assert found > after
    assert found == start or found - step <= after


def test_instants_of_members() -> None:
    """As `next_instant` of their timing; wrong members are refused at once."""
    after = instants_of({"cron": "0 * * * *", "zone": "UTC"})
    assert after(0) == next_instant(Timing(cron="0 * * * *"), 0) == HOUR_MS
    with pytest.raises(MemberError, match="give exactly one of"):
        instants_of({"zone": "UTC"})


def test_start_is_the_first_instant_and_end_is_none() -> None:
    """An instant at start_ms fires, an instant at end_ms does not."""
    timing = Timing(cron="0 * * * *", start_ms=2 * HOUR_MS, end_ms=4 * HOUR_MS)
    assert next_instant(timing, 0) == 2 * HOUR_MS
    assert next_instant(timing, 2 * HOUR_MS) == 3 * HOUR_MS
    assert next_instant(timing, 3 * HOUR_MS) is None
    rule = Timing(rrule="FREQ=DAILY", start_ms=2 * HOUR_MS, end_ms=DAY_MS + 2 * HOUR_MS)
    assert next_instant(rule, 0) == 2 * HOUR_MS
    assert next_instant(rule, 2 * HOUR_MS) is None


def test_a_fraction_of_a_second_at_the_start_belongs_to_an_interval_only() -> None:
    """An interval keeps milliseconds; wall times are whole seconds, the first after the start."""
    assert next_instant(Timing(interval_ms=10, start_ms=1_005), 0) == 1_005
    assert next_instant(Timing(cron="* * * * * *", start_ms=1_005), 0) == 2_000
    assert next_instant(Timing(rrule="FREQ=DAILY", start_ms=1_005), 0) == DAY_MS + 1_000


@pytest.mark.parametrize(
    "members",
    [
        {"cron": "* * * * * *"},
        {"cron": "0 0 29 2 *"},
        {"cron": "0 0 1 1 *"},
        {"interval_ms": 1, "start_ms": 0},
        {"rrule": "FREQ=YEARLY", "start_ms": 0},
    ],
)
def test_instants_end_with_the_year_9000(members: dict[str, object]) -> None:
    """Every search terminates near the end of Python's dates."""
    timing = check_timing(members)
    at: int | None = INSTANT_MS_MAX - 9 * 366 * DAY_MS
    for _ in range(20):
        if at is None:
            break
        at = next_instant(timing, at)
        assert at is None or at < INSTANT_MS_MAX
    assert next_instant(timing, INSTANT_MS_MAX - 1) is None
    assert next_instant(timing, 2**62) is None


def test_dates_that_never_come_end_the_search() -> None:
    """A rule for 30 February, which is valid text, has no instant."""
    rule = Timing(rrule="FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", start_ms=0)
    assert next_instant(rule, 0) is None
    daily = Timing(rrule="FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", start_ms=0)
    assert next_instant(daily, 0) is None


def test_a_later_release_of_the_zones_moves_the_next_instant() -> None:
    """Berlin gives up summer time between two firings: 09:00 stays 09:00 on the wall."""
    timing = Timing(cron="0 9 * * *", zone="Europe/Berlin")
    last = ms("2027-03-27T08:00:00")
    assert next_instant(timing, last) == ms("2027-03-28T07:00:00")
    changed = zones_where("Etc/GMT-1")
    wall = wall_s(timing, last, PACKAGED)
    assert next_instant_after_change(timing, last, wall, changed) == ms("2027-03-28T08:00:00")


def test_a_wall_time_that_has_fired_does_not_fire_again_by_new_data() -> None:
    """By the old data 09:00 was 08:00 UTC and has fired; by the new data it is 09:00 UTC."""
    timing = Timing(cron="0 9 * * *", zone="Europe/Berlin")
    last = ms("2027-01-10T08:00:00")
    wall = wall_s(timing, last, PACKAGED)
    west = zones_where("UTC")
    assert next_instant(timing, last, west) == ms("2027-01-10T09:00:00")
    assert next_instant_after_change(timing, last, wall, west) == ms("2027-01-11T09:00:00")


def test_a_wall_time_that_new_data_moves_into_the_past_is_next() -> None:
    """At 07:30 UTC, 09:00 was still to come; the new data has had it at 07:00 UTC."""
    timing = Timing(cron="0 9 * * *", zone="Europe/Berlin")
    last = ms("2027-01-09T08:00:00")
    wall = wall_s(timing, last, PACKAGED)
    east = zones_where("Etc/GMT-2")
    assert next_instant_after_change(timing, last, wall, east) == ms("2027-01-10T07:00:00")


def test_a_second_pass_fires_although_its_wall_time_is_the_last_one() -> None:
    """Equal data: `next_instant_after_change` is `next_instant`, in a fold too."""
    timing = Timing(cron="30 2 * * *", zone="Europe/Berlin", fold="both")
    last = ms("2027-10-31T00:30:00")
    wall = wall_s(timing, last, PACKAGED)
    found = next_instant_after_change(timing, last, wall, PACKAGED)
    assert found == ms("2027-10-31T01:30:00")


@given(
    st.sampled_from(["0 9 * * *", "30 2 * * *", "0,30 1-3 * * 0", "*/15 * * * *"]),
    st.sampled_from(["Etc/GMT-1", "Etc/GMT-2", "UTC", "America/New_York", "Pacific/Apia"]),
    st.integers(0, 400),
)
def test_over_a_change_each_wall_time_fires_once(cron: str, other: str, days: int) -> None:
    """A year of firings with a change of data after some day: wall times rise, none is left out."""
    timing = Timing(cron=cron, zone="Europe/Berlin", gap="skip")
    at = next_instant(timing, ms("2027-01-01T00:00:00"))
    change = ms("2027-01-01T00:00:00") + days * DAY_MS
    last = at
    while at is not None and at < change:
        last, at = at, next_instant(timing, at)
    assert last is not None
    wall, changed = wall_s(timing, last, PACKAGED), zones_where(other)
    found = next_instant_after_change(timing, last, wall, changed)
    assert found is not None
    assert found > last
    if not timing.elapsed:
        assert wall_s(timing, found, changed) > wall
        # None of the wall times between the two is of the recurrence, by the new data.
        between = next_instant(timing, last, changed)
        while between is not None and between < found:
            assert wall_s(timing, between, changed) <= wall
            between = next_instant(timing, between, changed)


def test_a_zone_that_the_data_lacks_is_an_error() -> None:
    """A host file of that name is never read."""
    with pytest.raises(MemberError, match="has no zone"):
        next_instant(Timing(cron="0 9 * * *", zone="Mars/Olympus"), 0)


YEAR_MS = 1_798_761_600_000
"""2027 begins, in UTC."""


def marked(timing: Timing) -> list[LocalTime]:
    """The marked instants of 2027."""
    found = walk(timing, YEAR_MS, YEAR_MS + 365 * DAY_MS)
    return [one for one in (local_time(timing, at) for at in found) if one.mark]


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
