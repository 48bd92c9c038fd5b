"""Rules and expressions whose instants are rare: how far a search goes, and what refuses them."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice

import pytest

from delaylog.broker.rules.schedules.cron import Cron, parsed_cron
from delaylog.broker.rules.schedules.instants import next_instant
from delaylog.broker.rules.schedules.rrule import Recurrence, recurrence
from delaylog.broker.rules.schedules.timing import check_timing
from delaylog.broker.rules.schedules.wall_clock import DAYS_MAX
from delaylog.contract.members import MemberError
from tests.broker.rules.schedules.walk import walls

START = datetime(2026, 11, 26, 9)  # noqa: DTZ001
POSITIONS = ",".join(map(str, range(1, 110)))
LEAP_MONDAYS = "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO;BYSETPOS=" + POSITIONS


def searched(text: str) -> Recurrence | Cron:
    return recurrence(text, START) if text.startswith("FREQ") else parsed_cron(text)


def test_months_that_a_rule_excludes_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the next 29 February that is a Monday are 17 years, of which Februaries are looked at; and
    positions are only looked for in periods that have a date.
    """
    counts = {"_first_day": 0, "_at_positions": 0}

    def counted(name: str) -> None:
        real = getattr(Recurrence, name)

        def call(self: Recurrence, given: object) -> object:
            counts[name] += 1
            return real(self, given)

        monkeypatch.setattr(Recurrence, name, call)

    for name in counts:
        counted(name)
    found = recurrence(LEAP_MONDAYS, START).next_wall(START)
    assert found == START.replace(2044, 2, 29)
    assert counts["_at_positions"] == 1
    assert counts["_first_day"] < 18 * 31


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;BYSETPOS=" + POSITIONS,
        "FREQ=DAILY;BYSETPOS=2",
        "FREQ=DAILY;INTERVAL=7;BYDAY=TU",
        "FREQ=WEEKLY;BYDAY=MO;BYSETPOS=2",
        "FREQ=MONTHLY;BYMONTHDAY=31;BYDAY=5MO;BYMONTH=2",
        "FREQ=YEARLY;BYMONTHDAY=29;BYDAY=53MO",
        "0 0 * 2 MON#5",
    ],
)
def test_a_bounded_search_refuses_what_is_too_rare(text: str) -> None:
    """The error names the member and the bound."""
    form = "rrule" if text.startswith("FREQ") else "cron"
    with pytest.raises(MemberError, match=f"^{form} matches too rarely.*{DAYS_MAX} days") as error:
        searched(text).next_wall(START, bounded=True)
    assert error.value.field == form


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29",
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=29",
        "FREQ=MONTHLY;BYMONTHDAY=13;BYDAY=FR",
        "FREQ=YEARLY;BYDAY=53MO",
        "FREQ=YEARLY;BYDAY=-53SU,53SA",
        "FREQ=YEARLY;INTERVAL=40",
        "FREQ=WEEKLY;INTERVAL=50;BYMONTH=1,12",
        "0 0 29 2 *",
        "0 0 L 2 *",
        "0 0 * * 5L",
    ],
)
def test_what_people_ask_for_is_within_the_bound(text: str) -> None:
    """Also around the year 2100, which has no 29 February."""
    at = START
    for _ in range(40):
        found = searched(text).next_wall(at, bounded=True)
        assert found == searched(text).next_wall(at)
        assert found is not None
        at = found
    assert at > datetime(2028, 1, 1)  # noqa: DTZ001


def test_the_53rd_weekday_of_a_year_is_of_that_year() -> None:
    """Most years have 52 of a weekday: the others are passed over."""
    found = list(islice(walls(recurrence("FREQ=YEARLY;BYDAY=53FR", START), START), 3))
    assert all((at - timedelta(weeks=52)).year == at.year for at in found)
    assert [at.year for at in found] == [2027, 2032, 2038]


def test_instants_are_bounded_where_it_is_asked_for() -> None:
    timing = check_timing({"cron": "0 0 * 2 MON#5"})
    assert next_instant(timing, 1_800_000_000_000) is not None
    with pytest.raises(MemberError, match="too rarely"):
        next_instant(timing, 1_800_000_000_000, bounded=True)
