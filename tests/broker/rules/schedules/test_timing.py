"""Checks of a timing: every error names its member, the value, and what to do."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.rules.schedules.rrule_text import members_of_text
from delaylog.broker.rules.schedules.timing import Timing, check_timing
from delaylog.contract.members import MemberError
from delaylog.contract.times import ANCHOR_MS_MIN

START = {"start_ms": 10**12}


@pytest.mark.parametrize(
    ("members", "field", "words"),
    [
        ({}, "rrule", "give exactly one of cron, interval_ms, rrule, not none"),
        ({"cron": "* * * * *", "interval_ms": 5}, "interval_ms", "not cron and interval_ms"),
        ({"cron": "* * * *"}, "cron", "'* * * *' is not valid: it has 4 fields, not 5 or 6"),
        ({"cron": "x" * 257}, "cron", "at most 256 bytes"),
        ({"cron": 5}, "cron", "must be text, not an integer"),
        ({"interval_ms": 0, **START}, "interval_ms", "must lie from 1 to"),
        ({"interval_ms": 5}, "start_ms", "is missing: interval_ms is counted from it"),
        ({"rrule": "FREQ=DAILY"}, "start_ms", "is missing: rrule is counted from it"),
        ({"rrule": "FREQ=NEVER", **START}, "rrule", "FREQ must be one of"),
        ({"cron": "* * * * *", "zone": "Europe/Berln"}, "zone", ": did you mean Europe/Berlin?"),
        ({"cron": "* * * * *", "zone": "new york"}, "zone", ": did you mean America/New_York?"),
        ({"cron": "* * * * *", "zone": "Mars"}, "zone", ", such as Europe/Berlin"),
        ({"cron": "* * * * *", "zone": "rome"}, "zone", ": did you mean Europe/Rome?"),
        ({"cron": "* * * * *", "zone": "GMT+5"}, "zone", "write Etc/GMT-5 for 5 h ahead of UTC, as "
         "Java, Quartz and ISO 8601 mean it, or Etc/GMT+5 for 5 h behind UTC"),
        ({"cron": "* * * * *", "zone": "UTC-3"}, "zone", "write Etc/GMT+3 for 3 h behind UTC"),
        ({"cron": "* * * * *", "zone": "+0200"}, "zone", "write Etc/GMT-2, which is 2 h ahead"),
        ({"cron": "* * * * *", "zone": "GMT+14"}, "zone", "write Etc/GMT-14"),
        ({"cron": "* * * * *", "zone": "UTC+05:30"}, "zone", "no zone is named by such an offset"),
        ({"cron": "* * * * *", "zone": "gmt-0"}, "zone", "write UTC"),
        ({"cron": "* * * * *", "zone": "AEST"}, "zone", "an abbreviation has several meanings"),
        ({"cron": "* * * * *", "zone": "W. Europe Standard Time"}, "zone", "a name of Windows"),
        ({"cron": "* * * * *", "zone": "../../etc/passwd"}, "zone", "is no zone"),
        ({"cron": "* * * * *", "gap": "first"}, "gap", "must be one of next, shift, skip"),
        ({"cron": "* * * * *", "fold": "next"}, "fold", "must be one of first, second, both"),
        ({"cron": "* * * * *", "end_ms": 10**12, **START}, "end_ms", "must be after start_ms"),
        ({"cron": "* * * * *", "count": 0}, "count", "must lie from 1"),
        ({"cron": "* * * * *", "tz": "UTC"}, "tz", "unknown member 'tz'"),
    ],
)  # fmt: skip
def test_a_wrong_timing_names_its_member(
    members: dict[str, object], field: str, words: str
) -> None:
    """One error of each kind."""
    with pytest.raises(MemberError) as error:
        check_timing(members)
    assert words in str(error.value)
    assert error.value.field == field


@given(st.text(max_size=30) | st.text("0123456789*,-/#LWMONJA ", max_size=30))
def test_any_text_is_a_cron_expression_or_an_error(text: str) -> None:
    """Nothing but MemberError comes out of a parser that is not ours."""
    with suppress(MemberError):
        assert check_timing({"cron": text}).cron == text


def test_wildcards_and_intervals_follow_elapsed_time() -> None:
    """As Debian's cron: a star that begins minutes or hours; the seconds do not count."""
    for cron in ("* 3 * * *", "0 * * * *", "*/5 1-3 * * *", "0 */30 2 * * *", "0 5 * * * *"):
        assert Timing(cron=cron).elapsed, cron
    for cron in ("0 3 * * *", "0,30 1-3 * * *", "* 30 2 * * *", "*/5 30 2 * * *"):
        assert not Timing(cron=cron).elapsed, cron
    assert Timing(interval_ms=5, start_ms=0).elapsed
    assert not Timing(rrule="FREQ=DAILY", start_ms=0).elapsed


def test_a_timing_is_its_members_again() -> None:
    """What a log stores is what was checked."""
    members = {"cron": "0 9 * * 1-5", "zone": "Europe/Berlin", "count": 3, "fold": "both"}
    timing = check_timing(members)
    assert check_timing(timing.as_dict()) == timing
    assert timing.as_dict() == {**members, "gap": "next"}


@pytest.mark.parametrize("text", ["DTSTART:19700101T090000Z", "DTSTART:19720229T000000"])
def test_a_rule_may_count_from_the_first_years(text: str) -> None:
    """Calls refuse seconds as `start_ms`; DTSTART has no unit to be mistaken."""
    members = members_of_text({"rrule": f"{text}\nRRULE:FREQ=YEARLY"})
    start_ms = check_timing(members).start_ms
    assert start_ms is not None
    assert 0 < start_ms < ANCHOR_MS_MIN
