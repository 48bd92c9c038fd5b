"""Lines of other schedulers: a conversion has the same instants as the line has there.

The references: an oracle of AWS, Quartz and Spring, croniter, python-dateutil, and what systemd
itself said.
"""

from __future__ import annotations

import re
import shutil
import time
from ast import literal_eval
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest
from croniter import croniter
from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.rules.schedules.cron import check_cron
from delaylog.broker.rules.schedules.dialects.table import (
    TABLE,
    converted,
    readings,
    with_converted,
)
from delaylog.broker.rules.schedules.rrule_text import members_of_text
from delaylog.broker.rules.schedules.timing import check_timing
from delaylog.contract.members import MemberError
from tests.broker.rules.schedules.dialects.oracle import SHOWN, first_instants, read_corpus
from tests.broker.rules.schedules.dialects.systemd import ask, read_events
from tests.broker.rules.schedules.walk import walk
from tests.effort import tries

START_MS = 1_798_761_600_000
"""2027-01-01, a Friday."""


def instants(members: dict[str, Any], most: int = SHOWN) -> list[str]:
    """The first instants of a timing from 2027 on, in UTC."""
    timing = check_timing({"start_ms": START_MS, **members} if "rrule" in members else members)
    found = islice(walk(timing, START_MS - 1), most)
    return [f"{datetime.fromtimestamp(at / 1_000, UTC):%Y-%m-%dT%H:%M:%S}" for at in found]


@pytest.mark.parametrize(("dialect", "line", "wanted"), read_corpus())
def test_a_converted_line_has_the_instants_of_its_dialect(
    dialect: str, line: str, wanted: list[str]
) -> None:
    """The stored instants, and that the oracle still says them."""
    assert first_instants(dialect, line) == wanted
    found = instants(converted(dialect, line))
    # The oracle looks at nine years.
    assert found[: len(wanted)] == wanted
    assert len(wanted) == SHOWN or len(found) == len(wanted) or found[len(wanted)] > "2035"


@pytest.mark.parametrize(("dialect", "line", "wanted"), read_corpus())
def test_a_hint_has_the_instants_of_its_dialect(dialect: str, line: str, wanted: list[str]) -> None:
    """A line is ours as it is, which is a form that the page documents, or its refusal says for
    each dialect that may have it what to write.
    """
    refused = refusal(line)
    if refused is None:
        assert dialect == "spring"
        assert "?" not in line
        return
    title = re.escape(TABLE[dialect].title)
    hint = re.search(rf"{title}[^:;]*(?:: |, write )([^;]*)", refused)
    # A term such as THUL is recognised in a line that is ours but for it.
    hint = hint or re.search(r"crontab, write ([^;]*)", refused)
    assert hint is not None, refused
    written = re.findall(r"(\w+) ('[^']*'|[0-9]+)", hint[1])
    members = {name: literal_eval(value) for name, value in written}
    assert instants(members)[: len(wanted)] == wanted


def refusal(line: str) -> str | None:
    """What the refusal of a line says; None if it is ours."""
    try:
        check_cron(line)
    except MemberError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("event", "wanted"), read_events())
def test_calendar_events_are_those_of_systemd(event: str, wanted: list[str]) -> None:
    """What systemd said when the file was written, and what it says here if it is here."""
    found = instants(converted("systemd", event))
    assert found == wanted
    if shutil.which("systemd-analyze"):
        assert ask(event) == wanted


CRONITER = """
*/5 * * * *
0 9 * * 1-5
0 9 * * L5
0 9 */5 * MON
0 9 1-7 * MON
0 9 L * *
0 0 * * 7
0 0 * * 0-6/2
0 0 * * sun#2
0 0 29 2 *
0 12 1,15 jan-mar *
*/5 * * * * 30
0 9 * * * 15
* * * * * */20
0 9 * * 1 10,40
30 8 * * fri 0-30/15
0 0 1 1 * 0 2028
0 9 * * * 0 2027-2028
0 9 ? * 1 0
15 10 ? 6 *
0 22-6 * * *
0 9 * * fri-mon
""".strip().splitlines()


@pytest.mark.parametrize("line", CRONITER)
def test_lines_of_croniter_are_those_of_croniter(line: str) -> None:
    """The second is behind, and either of the days is enough."""
    start = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    theirs = croniter(line, start, ret_type=datetime)
    count = SHOWN if "2028" not in line or "2027" in line else 1
    wanted = [f"{theirs.get_next():%Y-%m-%dT%H:%M:%S}" for _ in range(count)]
    assert instants(converted("croniter", line), len(wanted)) == wanted


_NUMBER = st.integers(0, 59).map(str)
_MINUTES = st.lists(_NUMBER, min_size=1, max_size=3).map(",".join) | st.sampled_from(
    ["*", "*/7", "5-20/5", "50-10"]
)
_HOURS = st.sampled_from(["*", "9", "8-17", "22-6", "*/5", "1,13"])
_DAYS = st.sampled_from(["*", "1", "1-7", "15,31", "25-5", "*/9", "L"])
_MONTHS = st.sampled_from(["*", "1", "feb-apr", "11-2", "*/5", "6"])
_WEEKDAYS = st.sampled_from(["*", "1-5", "fri-mon", "0", "7", "sat,sun", "5-1"])


@settings(max_examples=tries(150), deadline=None)
@given(st.tuples(_MINUTES, _HOURS, _DAYS, _MONTHS, _WEEKDAYS, _NUMBER))
def test_any_line_of_croniter_is_that_of_croniter(fields: tuple[str, ...]) -> None:
    """Ranges that wrap, too; where they are refused as ours, the hint has the same instants."""
    line = " ".join(fields)
    start = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    theirs = croniter(line, start, ret_type=datetime)
    wanted = [f"{theirs.get_next():%Y-%m-%dT%H:%M:%S}" for _ in range(SHOWN)]
    assert instants(converted("croniter", line)) == wanted


@settings(max_examples=tries(100), deadline=None)
@given(st.tuples(_MINUTES, _HOURS, _DAYS, _MONTHS, st.sampled_from(["*", "fri-mon", "5-1"])))
def test_a_hint_for_a_crontab_means_what_the_line_means(fields: tuple[str, ...]) -> None:
    """Five fields with ranges that wrap: the refusal has one line, with croniter's instants."""
    line = " ".join(fields)
    if line.split()[2].startswith("*") and line.split()[2] != "*":
        # Here a step of days and a day of the week must both match, as in Vixie's cron.
        return
    start = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    theirs = croniter(line, start, ret_type=datetime)
    wanted = [f"{theirs.get_next():%Y-%m-%dT%H:%M:%S}" for _ in range(SHOWN)]
    refused, ours = refusal(line), line
    if refused is not None:
        found = re.search(r"as a line of crontab, write cron '([^']*)'$", refused)
        assert found is not None, refused
        ours = found[1]
    assert instants({"cron": ours}) == wanted


ICS = r"""
DTSTART:20270101T090000Z\nRRULE:FREQ=DAILY;COUNT=3
DTSTART:20270101T090000Z\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE;UNTIL=20270113T090000Z
DTSTART:20270101T090000Z\nRRULE:FREQ=MONTHLY;BYDAY=-1FR\nEXDATE:20270226T090000Z
DTSTART:20270101T090000Z\nRRULE:FREQ=HOURLY;INTERVAL=7;BYDAY=SA
DTSTART:20270101T090000Z\nRRULE:FREQ=MINUTELY;INTERVAL=50;COUNT=3
DTSTART:20270101T090000Z\nRRULE:FREQ=SECONDLY;INTERVAL=90
DTSTART:20270101T090000Z\nRRULE:FREQ=YEARLY;BYYEARDAY=1,200,-1
DTSTART:20270131T090000Z\nRRULE:FREQ=MONTHLY;COUNT=5
""".strip().splitlines()


@pytest.mark.parametrize("text", [line.replace("\\n", "\n") for line in ICS])
def test_lines_of_icalendar_are_those_of_dateutil(text: str) -> None:
    """COUNT from DTSTART, UNTIL included, and exceptions."""
    wanted = [f"{at:%Y-%m-%dT%H:%M:%S}" for at in islice(rrulestr(text), SHOWN)]
    assert instants(converted("ics", text)) == wanted
    assert members_of_text({"rrule": text}) == converted("ics", text)


@pytest.mark.parametrize(
    "line",
    [
        r"DESCRIPTION:Agenda\n\nDial in 123\; code=5",
        r"DESCRIPTION:moved from\nDTSTART: Monday",
        r"DESCRIPTION:no RDATE: and\nEXRULE:none",
        "SUMMARY:no RRULE:FREQ=WEEKLY",
        r"LOCATION:Room\nFloor=3",
        "DESCRIPTION:a text\n  DURATION: 30 minutes",
    ],
)
def test_the_texts_of_an_event_are_no_parts_of_its_rule(line: str) -> None:
    """What a person writes into an invitation, with its line breaks as RFC 5545 escapes them."""
    event = "BEGIN:VEVENT\nDTSTART:20270101T090000Z\nRRULE:FREQ=DAILY\n{}\nEND:VEVENT\n"
    assert converted("ics", event.format(line)) == converted("ics", event.format("UID:1"))


@pytest.mark.parametrize(
    ("dialect", "line", "words"),
    [
        ("aws", "0 9 1 * 2 *", "one of the day of month and the day of week must be '?'"),
        ("aws", "0 9 LW * ? *", "day of month has no 'LW' in this dialect"),
        ("aws", "cron(0 9 * * *)", "it has 5 fields, not 6: minutes, hours"),
        ("aws", "rate(0 minutes)", "a rate is a number"),
        ("aws", "at(tomorrow)", "at has a time such as 2027-01-31T09:00:00"),
        ("aws", "0 9 ? * 0 *", "day of week must lie from 1 to 7, not '0'"),
        ("quartz", "0 0 9 1 * 2", "one of the day of month and the day of week must be '?'"),
        ("quartz", "0 0 9 31W * ?", "31W is not defined for shorter months"),
        ("quartz", "0 0 9 ? * 2 2027/2", "the years '2027/2' are no range"),
        ("quartz", "0 0 9 ? * 2 2027,2029", "put a schedule for each range"),
        ("quartz", "0 0 9 ? * 8", "day of week must lie from 1 to 7"),
        ("quartz", "0 0 9 ? * TUE,THU#2", "THU#2 must be the only day of the week"),
        ("quartz", "0 0 9 ? * FRIL,2", "FRIL must be the only day of the week"),
        ("aws", "0 9 ? * 2#1,3#1 *", "2#1 must be the only day of the week"),
        ("spring", "0 0 9 15W * MON", "both 15W and MON must match"),
        ("spring", "0 9 * * *", "it has 5 fields, not 6"),
        ("croniter", "R 9 * * *", "R and H are random times"),
        ("croniter", "0 20-4/3 * * *", "croniter counts the step of 20-4/3 in its own way"),
        ("vixie", "0~9 9 * * *", "0~9 is a random time"),
        ("vixie", "@reboot", "@reboot has no times"),
        ("systemd", "*-*-* 09:00:00.5", "fractions are not supported"),
        ("systemd", "2027,2029-01-01", "put a schedule for each range"),
        ("systemd", "Fri..Mon 10:00", "FRI..MON goes backwards"),
        ("systemd", "Mon lunch", "'lunch' is no part of a calendar event"),
    ],
)
def test_what_has_no_equivalent_is_refused_by_name(dialect: str, line: str, words: str) -> None:
    """The error is of the member, and says what the dialect has there."""
    with pytest.raises(MemberError) as error:
        converted(dialect, line)
    assert words in str(error.value)
    assert f"is not converted from {TABLE[dialect].title}" in str(error.value)


@pytest.mark.parametrize(
    ("days", "wanted"),
    [("0/2", "SUN,TUE,THU,SAT"), ("0-7/3", "SUN,WED,SAT"), ("7-7", "SUN-SAT"), ("0-2", "SUN-TUE")],
)
def test_a_range_of_spring_from_sunday_counts_from_it(days: str, wanted: str) -> None:
    """Spring keeps such a Sunday as 0 (BitsCronField), in front of Monday."""
    assert converted("spring", f"0 0 9 ? * {days}") == {"cron": f"0 9 * * {wanted}"}


def test_a_zone_goes_with_the_line() -> None:
    """AWS fires nothing at a time that the clocks skip; other lines name their zone themselves."""
    berlin, wanted = "Europe/Berlin", {"cron": "30 2 * * *"}
    assert converted("aws", "cron(30 2 * * ? *)", berlin) == {**wanted, "gap": "skip"}
    assert converted("vixie", f"CRON_TZ={berlin} 30 2 * * *") == {**wanted, "zone": berlin}
    assert converted("systemd", f"02:30 {berlin}") == {**wanted, "zone": berlin}
    years = converted("quartz", "0 30 2 * * ? 2027", berlin)
    assert years == {**wanted, "start_ms": 1_798_758_000_000, "end_ms": 1_830_294_000_000}


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"from": "aws", "interval_ms": 5}, "give the line as cron or as rrule"),
        ({"from": "unix", "cron": "* * * * *"}, "must be one of aws, quartz"),
        (
            {"from": "vixie", "cron": "TZ=Asia/Tokyo 0 9 * * *", "zone": "Europe/Berlin"},
            "it names the zone Asia/Tokyo, and zone is Europe/Berlin",
        ),
        (
            {"from": "quartz", "cron": "0 0 9 * * ? 2027", "start_ms": 5},
            "is 1798761600000 by the line, not 5: leave it out",
        ),
    ],
)
def test_a_line_that_contradicts_members_is_refused(members: dict[str, Any], words: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(MemberError, match=re.escape(words)):
        with_converted(members)


@given(st.text(max_size=40) | st.text("0123456789*,-/#LWMONJA?~.: cronte()@=TZ", max_size=40))
def test_any_text_has_readings_or_none(text: str) -> None:
    """Nothing but MemberError comes out, whatever the text."""
    assert isinstance(readings(text), str)
    for name in TABLE:
        with suppress(MemberError):
            check_timing({"start_ms": START_MS, **converted(name, text)})


LONG: list[dict[str, str]] = [
    {"cron": "0 0 12 * * ? 2000-99999999"},
    {"cron": "0 0 12 * * ? 2000-99999999", "from": "quartz"},
    {"cron": "@every " + "1" * 4_000, "from": "vixie"},
    {"cron": "@every " + "9" * 240 + "h", "from": "vixie"},
    {"cron": "cron(0 12 * * ? " + "9" * 4_000 + ")", "from": "aws"},
    {"cron": "rate(" + "9" * 4_000 + " minutes)", "from": "aws"},
    {"cron": "*-*~9999999999/1 00:00", "from": "systemd"},
    {"cron": "*-*~3/0 00:00", "from": "systemd"},
    {"rrule": " " * 4_000 + "x"},
    {"rrule": " " * 400_000 + "x"},
    {"rrule": "DTSTART:" + "\r\n " * 1_300},
    {"rrule": "\n \t" * 1_300 + "RRULE:x"},
    {"rrule": "DTSTART" + ";A=" * 1_300},
    {"cron": "x" * 400_000, "from": "vixie"},
]


@pytest.mark.parametrize("members", LONG, ids=lambda members: str(members)[:50])
def test_a_line_costs_what_its_length_costs(members: dict[str, str]) -> None:
    """Not the square of it, nor a value for each number that it names; and it is refused."""

    def cost_of(given: dict[str, str], times: int) -> float:
        begun = time.process_time()
        for _ in range(times):
            with suppress(MemberError):
                check_timing(members_of_text(with_converted(given)[0]))
        return time.process_time() - begun

    floor = cost_of({"cron": "*-*-* 00:00", "from": "systemd"}, 500)
    assert cost_of(members, 1) < floor
    with pytest.raises(MemberError):
        check_timing(members_of_text(with_converted(members)[0]))
