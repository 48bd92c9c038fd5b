"""Recurrence rules against python-dateutil, and the texts that are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from dateutil.rrule import rrulestr
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from delaylog.broker.schedules.rrule import recurrence
from delaylog.broker.schedules.rrule_text import parsed_rrule
from delaylog.storage.errors import MemberError
from tests.effort import tries

DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


def some(low: int, high: int, *, signed: bool = False) -> st.SearchStrategy[str]:
    """A list of numbers."""
    number = st.integers(low, high)
    if signed:
        number |= st.integers(-high, -low)
    return st.sets(number, min_size=1, max_size=3).map(lambda s: ",".join(map(str, sorted(s))))


@st.composite
def rules(draw: st.DrawFn) -> str:
    """A valid rule."""
    frequency = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    parts = [f"FREQ={frequency}", f"INTERVAL={draw(st.sampled_from([1, 1, 2, 3, 7]))}"]
    maybe = st.booleans()
    months = draw(maybe)
    if months:
        parts.append("BYMONTH=" + draw(some(1, 12)))
    if frequency != "WEEKLY" and draw(maybe):
        parts.append("BYMONTHDAY=" + draw(some(1, 31, signed=True)))
    if draw(maybe):
        weekdays = draw(st.sets(st.sampled_from(DAYS), min_size=1, max_size=4))
        nth = st.just("")
        if frequency == "MONTHLY" or (frequency == "YEARLY" and months):
            nth |= st.sampled_from(["1", "2", "5", "-1", "-2", "-5"])
        elif frequency == "YEARLY":
            nth |= st.sampled_from(["1", "20", "53", "-1", "-10", "-53"])
        # dateutil finds nothing where numbered weekdays and others are mixed; the test below does.
        numbered = draw(maybe)
        words = [(draw(nth) if numbered else "") + each for each in sorted(weekdays)]
        assume(len({word in DAYS for word in words}) == 1)
        parts.append("BYDAY=" + ",".join(words))
    for name, high in (("BYHOUR", 23), ("BYMINUTE", 59), ("BYSECOND", 59)):
        if draw(maybe):
            parts.append(f"{name}={draw(some(0, high))}")
    # dateutil takes the positions of a first week from its start on; the test below does not.
    if draw(maybe) and frequency != "WEEKLY" and any(part.startswith("BY") for part in parts):
        parts.append("BYSETPOS=" + draw(some(1, 10, signed=True)))
    parts.append("WKST=" + draw(st.sampled_from(DAYS)))
    return ";".join(parts)


@settings(max_examples=tries(400), deadline=None)
@given(rules(), st.datetimes(datetime(1990, 1, 1), datetime(2030, 1, 1)))  # noqa: DTZ001
def test_times_are_those_of_dateutil(text: str, start: datetime) -> None:
    """The first twelve times, one after the other."""
    start = start.replace(microsecond=0, fold=0)
    mine = recurrence(text, start)
    found: list[datetime] = []
    at = mine.next_wall(start - timedelta(seconds=1))
    while at is not None and len(found) < 12:
        found.append(at)
        at = mine.next_wall(at)
    # Where ours ends after 50 years, theirs goes on to the year 9999.
    theirs = islice(rrulestr(text, dtstart=start), len(found) if len(found) == 12 else 0)
    assert found == (list(theirs) or found)


def test_positions_are_those_of_the_whole_week() -> None:
    """A week that begins before the start has its first time before the start, too."""
    start = datetime(2027, 1, 5, 9, tzinfo=UTC).replace(tzinfo=None)
    mine = recurrence("FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=1", start)
    assert mine.next_wall(start - timedelta(seconds=1)) == start + timedelta(days=6)


def test_numbered_weekdays_go_with_others() -> None:
    """RFC 5545: each Monday, and the first Wednesday of the month."""
    start = datetime(2027, 1, 1, 9, tzinfo=UTC).replace(tzinfo=None)
    mine, at, found = recurrence("FREQ=MONTHLY;BYDAY=MO,1WE", start), start, []
    for _ in range(5):
        following = mine.next_wall(at)
        assert following is not None
        found.append((following.month, following.day))
        at = following
    assert found == [(1, 4), (1, 6), (1, 11), (1, 18), (1, 25)]


@settings(max_examples=tries(100), deadline=None)
@given(rules(), st.datetimes(datetime(1990, 1, 1), datetime(2030, 1, 1)), st.integers(0, 9_000))  # noqa: DTZ001
def test_a_search_may_begin_anywhere(text: str, start: datetime, days: int) -> None:
    """Periods are counted from the start, not from the last time found."""
    start = start.replace(microsecond=0, fold=0)
    mine = recurrence(text, start)
    first = mine.next_wall(start - timedelta(seconds=1))
    assume(first is not None)
    after = start + timedelta(days=days, hours=5)
    direct = mine.next_wall(after)
    at = first
    for _ in range(2_000):
        if at is None or at > after:
            break
        at = mine.next_wall(at)
    else:
        assume(False)
    assert direct == at


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "NAME=VALUE"),
        ("FREQ", "NAME=VALUE"),
        ("FREQ=", "NAME=VALUE"),
        ("INTERVAL=2", "FREQ must be one of"),
        ("FREQ=HOURLY", "below a day: interval_ms, cron"),
        ("FREQ=DAILY;FREQ=DAILY", "occurs twice"),
        ("FREQ=DAILY;COUNT=3", "use the member count"),
        ("FREQ=DAILY;UNTIL=20270101T000000Z", "use the member end_ms"),
        ("FREQ=DAILY;BYWEEKNO=3", "BYWEEKNO is not supported"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL must lie from 1 to 366, not 0"),
        ("FREQ=YEARLY;INTERVAL=41", "INTERVAL must lie from 1 to 40"),
        ("FREQ=DAILY;INTERVAL=x", "whole numbers"),
        ("FREQ=DAILY;WKST=XX", "WKST must be one of"),
        ("FREQ=DAILY;BYDAY=1MO", "BYDAY has no numbers with FREQ=DAILY"),
        ("FREQ=MONTHLY;BYDAY=6MO", "BYDAY has numbers up to 5 here"),
        ("FREQ=YEARLY;BYDAY=54MO", "BYDAY has numbers up to 53 here"),
        ("FREQ=MONTHLY;BYDAY=0MO", "BYDAY must be weekdays"),
        ("FREQ=MONTHLY;BYDAY=MON", "BYDAY must be weekdays"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "does not go with FREQ=WEEKLY"),
        ("FREQ=MONTHLY;BYMONTHDAY=32", "BYMONTHDAY must lie from 1 to 31, not 32"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "BYMONTHDAY must lie from 1 to 31, not 0"),
        ("FREQ=DAILY;BYHOUR=-1", "BYHOUR must lie from 0 to 23, not -1"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR must lie from 0 to 23, not 24"),
        ("FREQ=DAILY;BYHOUR=٣", "whole numbers"),
        (
            "FREQ=DAILY;BYHOUR=0,1;BYMINUTE=" + ",".join(map(str, range(60))) + ";BYSECOND="
            + ",".join(map(str, range(13))),
            "at most 1440 times, not 1560",
        ),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_refused_with_its_part(text: str, words: str) -> None:
    """The error names the member and says which part is wrong."""
    with pytest.raises(MemberError, match=r"^rrule is not valid: ") as error:
        parsed_rrule(text)
    assert words in str(error.value)
    assert error.value.field == "rrule"


def test_a_rule_may_have_its_prefix_and_small_letters() -> None:
    """As calendars write it, and as people do."""
    start = datetime(2027, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    assert recurrence("RRULE:freq=weekly;byday=fr", start).next_wall(start) == start + timedelta(7)
