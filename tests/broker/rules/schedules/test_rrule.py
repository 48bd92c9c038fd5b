"""Recurrence rules against python-dateutil, and the texts that are refused."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from dateutil.rrule import rrulestr
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from delaylog.broker.rules.schedules.instants import local_time
from delaylog.broker.rules.schedules.rrule import recurrence
from delaylog.broker.rules.schedules.rrule_text import members_of_text, parsed_rrule
from delaylog.broker.rules.schedules.timing import Timing, check_timing
from delaylog.broker.rules.schedules.wall_clock import WallClock
from delaylog.broker.rules.schedules.zones import PACKAGED
from delaylog.contract.members import MemberError
from tests.broker.rules.schedules.walk import walk, walls
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
    found = list(islice(walls(recurrence(text, start), start - timedelta(seconds=1)), 12))
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
    mine = recurrence("FREQ=MONTHLY;BYDAY=MO,1WE", start)
    found = [(at.month, at.day) for at in islice(walls(mine, start), 5)]
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
        ("", "it has no FREQ"),
        ("FREQ", "NAME=VALUE"),
        ("FREQ=", "NAME=VALUE"),
        ("INTERVAL=2", "it has no FREQ"),
        ("FREQ=FORTNIGHTLY", "FREQ must be one of SECONDLY, MINUTELY, HOURLY, DAILY"),
        ("FREQ=DAILY;FREQ=DAILY", "occurs twice"),
        ("FREQ=DAILY;COUNT=0", "COUNT must lie from 1 to 10000, not 0"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20270101", "COUNT and UNTIL exclude each other"),
        ("FREQ=DAILY;UNTIL=2027-01-01", "UNTIL is a time such as 20270131"),
        ("FREQ=DAILY;UNTIL=20270230", "not '20270230'"),
        ("FREQ=DAILY;BYYEARDAY=3", "BYYEARDAY does not go with FREQ=DAILY"),
        ("FREQ=HOURLY;BYDAY=1MO", "BYDAY has no numbers with FREQ=HOURLY"),
        ("FREQ=DAILY;BYDAY", "'BYDAY' is no NAME=VALUE, such as FREQ=WEEKLY;BYDAY=MO,WE"),
        ("FREQ=DAILY\nRDATE:20270101", "RDATE is not supported: send a message with deliver_at_ms"),
        ("FREQ=DAILY\nEXRULE:FREQ=WEEKLY", "EXRULE is not supported"),
        ("RRULE:FREQ=DAILY\nRRULE:FREQ=WEEKLY", "it has 2 rules: put a schedule for each"),
        ("FREQ=DAILY;RSCALE=CHINESE", "rules are of the Gregorian calendar"),
        ("FREQ=DAILY;BYWEEKNO=3", "BYWEEKNO is not supported: of the weeks 2 to 51, a Monday"),
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


FREQUENT = ("SECONDLY", "MINUTELY", "HOURLY")


@st.composite
def frequent_rules(draw: st.DrawFn) -> str:
    """A valid rule below a day."""
    frequency = draw(st.sampled_from(FREQUENT))
    interval = draw(st.sampled_from([1, 2, 7, 15, 45, 90, 1_000]))
    parts = [f"FREQ={frequency}", f"INTERVAL={interval}"]
    limits = [
        ("BYMONTH", 1, 12, False),
        ("BYMONTHDAY", 1, 28, True),
        ("BYYEARDAY", 1, 365, True),
        ("BYHOUR", 0, 23, False),
        ("BYMINUTE", 0, 59, False),
        ("BYSECOND", 0, 59, False),
    ]
    for name, low, high, signed in draw(st.lists(st.sampled_from(limits), max_size=2, unique=True)):
        parts.append(f"{name}={draw(some(low, high, signed=signed))}")
    if draw(st.booleans()):
        parts.append("BYDAY=" + ",".join(sorted(draw(st.sets(st.sampled_from(DAYS), min_size=1)))))
    return ";".join(parts)


@settings(max_examples=tries(60), deadline=None)
@given(frequent_rules(), st.datetimes(datetime(1990, 1, 1), datetime(2030, 1, 1)))  # noqa: DTZ001
def test_times_below_a_day_are_those_of_dateutil(text: str, start: datetime) -> None:
    """The first eight times within ten days, where dateutil searches for them fast."""
    start = start.replace(microsecond=0, fold=0)
    found = first_walls(text, start, 8, days=10)
    end = found[-1] if found else start + timedelta(days=1)
    try:
        theirs = rrulestr(text, dtstart=start, cache=False).between(start, end, inc=True)
    except ValueError:
        # It refuses a rule that never matches.
        theirs = []
    assert found == theirs[:8]


def first_walls(text: str, start: datetime, most: int, *, days: int = 9_999) -> list[datetime]:
    """The first times of a rule, as far as a caller could wait for them."""
    mine, found = recurrence(text, start), list[datetime]()
    at: datetime | None = start - timedelta(seconds=1)
    with suppress(MemberError):
        while len(found) < most and at is not None:
            at = mine.next_wall(at, bounded=True)
            if at is None or at > start + timedelta(days=days):
                break
            found.append(at)
    return found


@settings(max_examples=tries(60), deadline=None)
@given(
    rules() | frequent_rules(),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001
    st.integers(1, 9),
    st.sets(st.integers(0, 9), max_size=3),
)
def test_count_and_exceptions_are_those_of_the_start(
    text: str, start: datetime, count: int, left_out: set[int]
) -> None:
    """COUNT counts from the start, those that EXDATE leaves out included, from wherever a search
    begins.
    """
    start = start.replace(microsecond=0, fold=0)
    every = first_walls(text, start, 12)
    assume(len(every) == 12)
    out = {every[n] for n in left_out if n < len(every)}
    lines = f"RRULE:{text};COUNT={count}"
    if out:
        lines += "\nEXDATE:" + ",".join(f"{each:%Y%m%dT%H%M%S}" for each in out)
    wanted = [each for each in every[:count] if each not in out]
    mine = recurrence(lines, start)
    for after in (start - timedelta(seconds=1), *every):
        following = next((each for each in wanted if each > after), None)
        assert mine.next_wall(after) == following


@pytest.mark.parametrize(
    ("until", "last"),
    [
        ("20270103T090000", 3),
        ("20270103T085959", 2),
        ("20270103", 3),
        ("20270103T080000Z", 3),
        ("20270103T075959Z", 2),
        ("20261231", 0),
    ],
)
def test_until_is_the_last_instance_that_may_be(until: str, last: int) -> None:
    """RFC 5545, 3.3.10: inclusive; a date is the whole day, and a local time is of the zone."""
    members = members_of_text(
        {"rrule": f"DTSTART;TZID=Europe/Berlin:20270101T090000\nRRULE:FREQ=DAILY;UNTIL={until}"}
    )
    found = list(walk(check_timing(members), 0))
    start_ms = members["start_ms"]
    assert found == [start_ms + day * 86_400_000 for day in range(last)]


START = "20270104T090000"


@pytest.mark.parametrize(
    "text",
    [
        f"DTSTART;TZID=America/Denver:{START}\nRRULE:FREQ=WEEKLY;BYDAY=MO",
        f"DTSTART;TZID=America/Denver:{START} RRULE:FREQ=WEEKLY;BYDAY=MO",
        f"dtstart;tzid=America/Denver:{START.lower()}\r\nrrule:freq=weekly;byday=mo;\r\n",
        f"RRULE:FREQ=WEEKLY;BYDAY=MO;DTSTART={START};TZID=America/Denver",
        f'DTSTART;TZID="/mozilla.org/20050126_1/America/Denver":{START}\n'
        "RRULE:FREQ=WEEK\n LY;BYDAY=MO",
        f"BEGIN:VCALENDAR\nBEGIN:VTIMEZONE\nDTSTART:19700101T000000\nRRULE:FREQ=YEARLY\n"
        f"END:VTIMEZONE\nBEGIN:VEVENT\nUID:1\nSUMMARY:a: b\n"
        f"DTSTART;TZID=America/Denver:{START}\nRRULE:FREQ=WEEKLY;BYDAY=MO\nBEGIN:VALARM\n"
        "TRIGGER:-PT5M\nEND:VALARM\nEND:VEVENT\nEND:VCALENDAR\n",
        f"  DTSTART;TZID=America/Denver:{START}\n  RRULE:FREQ=WEEKLY; BYDAY=MO \n",
        f"DTSTART;TZID=America/Denver:{START}\\nRRULE:FREQ=WEEKLY;BYDAY=MO",
    ],
)
def test_lines_around_a_rule_are_understood(text: str) -> None:
    """However calendars and programs write them; what is stored is the same."""
    members = members_of_text({"rrule": text})
    parts = dict(part.split("=") for part in members["rrule"].split(";"))
    assert parts == {"FREQ": "WEEKLY", "BYDAY": "MO"}
    assert members["zone"] == "America/Denver"
    assert local_time(check_timing(members), members["start_ms"]).text == (
        "2027-01-04T09:00:00-07:00"
    )
    assert members_of_text(members) == members


@pytest.mark.parametrize("component", ["VEVENT", "VTODO", "VJOURNAL"])
def test_a_calendar_of_two_events_is_refused(component: str) -> None:
    """It would be one schedule with the start of one and the rule of the other."""
    event = f"BEGIN:{component}\nDTSTART:{START}\nRRULE:FREQ=DAILY\nEND:{component}\n"
    members_of_text({"rrule": event})
    with pytest.raises(MemberError, match="it has 2 events: put a schedule for each"):
        members_of_text({"rrule": event * 2})


@pytest.mark.parametrize(
    "exception",
    [
        "EXDATE;TZID=Europe/Berlin:20270102T090000",
        "EXDATE:20270102T080000Z",
        "EXDATE;VALUE=DATE:20270102",
        "EXDATE;TZID=America/New_York:20270102T030000",
        "EXDATE:20270102T090000,20270102T080000Z",
    ],
)
def test_an_exception_leaves_one_instance_out(exception: str) -> None:
    """In the zone of the rule, in UTC, as a day, and in another zone."""
    text = f"DTSTART;TZID=Europe/Berlin:20270101T090000\nRRULE:FREQ=DAILY;COUNT=3\n{exception}"
    timing = check_timing(members_of_text({"rrule": text}))
    assert timing.start_ms is not None
    start_ms = timing.start_ms
    assert list(walk(timing, 0)) == [start_ms, start_ms + 2 * 86_400_000]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"zone": "Europe/Berlin"}, "DTSTART is in UTC and zone is Europe/Berlin"),
        ({"start_ms": 5}, "DTSTART is 1799053200000 and start_ms is 5: leave one out"),
    ],
)
def test_lines_that_contradict_members_are_refused(members: dict[str, object], words: str) -> None:
    """Nothing is guessed."""
    text = f"DTSTART:{START}Z\nRRULE:FREQ=DAILY"
    with pytest.raises(MemberError, match=words):
        members_of_text({"rrule": text, **members})


@pytest.mark.parametrize(
    ("zone", "rule", "wanted"),
    [
        ("Europe/Berlin", "BYHOUR=2;BYMINUTE=30", "2027-03-28T03:30:00+02:00"),
        ("Australia/Lord_Howe", "BYHOUR=2;BYMINUTE=15", "2027-10-03T02:45:00+11:00"),
        ("America/New_York", "BYHOUR=2;BYMINUTE=0", "2027-03-14T03:00:00-04:00"),
        ("Pacific/Apia", "BYHOUR=9", "2011-12-31T09:00:00+14:00"),
        ("Antarctica/Troll", "BYHOUR=1,2;BYMINUTE=30", "2027-03-28T03:30:00+02:00"),
    ],
)
def test_a_time_in_a_gap_has_the_offset_before_it(zone: str, rule: str, wanted: str) -> None:
    """RFC 5545, 3.3.10 and 3.3.5; the days around it as ever, and no instant twice."""
    timing = check_timing({"rrule": f"FREQ=DAILY;{rule}", "zone": zone, "start_ms": 0})
    assert timing.gap == "shift"
    after_ms = int(datetime.fromisoformat(wanted).timestamp() * 1_000) - 3 * 86_400_000
    found = [local_time(timing, at).text for at in islice(walk(timing, after_ms), 9)]
    assert wanted in found
    instants = [datetime.fromisoformat(each) for each in found]
    assert instants == sorted(set(instants))


@settings(max_examples=tries(60), deadline=None)
@given(
    frequent_rules() | rules(),
    st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "America/New_York", "Pacific/Apia"]),
    st.integers(0, 30),
)
def test_instants_over_a_gap_are_those_of_the_standard(text: str, zone: str, before: int) -> None:
    """Each wall time with the offset before a change, as a set in order."""
    turns = {
        "Europe/Berlin": 1_806_195_600,
        "Australia/Lord_Howe": 1_822_404_600,
        "America/New_York": 1_805_007_600,
        "Pacific/Apia": 1_325_239_200,
    }
    clock = WallClock(PACKAGED.zone(zone))
    first_s = turns[zone] - before * 3_600
    start = clock.wall(first_s - 86_400)
    timing = Timing(rrule=text, zone=zone, gap="shift", start_ms=clock.instant(start) * 1_000)
    walls = first_walls(text, start, 1_500, days=4)
    whole = len(walls) < 1_500
    wanted = sorted({clock.instant(wall) * 1_000 for wall in walls})
    if not whole:
        # Behind the last wall others may be mixed with those of the gap.
        wanted = [at for at in wanted if at < wanted[-1] - 86_400_000]
    assert list(islice(walk(timing, 0), len(wanted))) == wanted


def test_a_rule_may_have_its_prefix_and_small_letters() -> None:
    """As calendars write it, and as people do."""
    start = datetime(2027, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    assert recurrence("RRULE:freq=weekly;byday=fr", start).next_wall(start) == start + timedelta(7)
