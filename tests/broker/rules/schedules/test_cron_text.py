"""Errors of cron expressions: the field, its value, its bounds, and what to write instead."""

from __future__ import annotations

import re

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.rules.schedules.cron import check_cron
from delaylog.broker.rules.schedules.timing import check_timing
from delaylog.broker.rules.schedules.wall_clock import EPOCH
from delaylog.contract.members import MemberError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it has 0 fields, not 5 or 6: five are minute, hour"),
        ("* * * * * * * *", "it has 8 fields"),
        ("* * * * * * *", "as a line of Quartz (Sunday is 1) or croniter (the second is the sixth "
         "field), write cron '* * * * * *'"),
        ("61 * * * *", "minute must lie from 0 to 59, not '61'"),
        ("61 0 * * * *", "second must lie from 0 to 59, not '61'"),
        ("0 24 * * *", "hour must lie from 0 to 23, not '24'"),
        ("0 0 0 * *", "day of month must lie from 1 to 31, L or LW, not '0'"),
        ("0 0 0W * *", "day of month has no '0W': write L, LW, L-1 to L-30, L-3W or 15W"),
        ("0 0 32W * *", "has no '32W'"),
        ("0 0 L-31 * *", "has no 'L-31'"),
        ("0 0 L-0 * *", "has no 'L-0'"),
        ("0 0 1-5W * *", "has no '1-5W'"),
        ("0 0 W * *", "has no 'W'"),
        ("0 0 L-3/2 * *", "has no 'L-3/2'"),
        ("0 0 * 13 *", "month must lie from 1 to 12, or JAN to DEC, not '13'"),
        ("0 0 * * 8", "day of week must lie from 0 to 7 (0 and 7 are Sunday)"),
        ("0 0 * * mo", "or SUN to SAT, not 'MO'"),
        ("1,,2 * * * *", "not ''"),
        ("1- * * * *", "not ''"),
        ("*/90 * * * *", "step from 1 to 59, not '90' (steps begin again with each range; "
         "90 minutes of elapsed time are interval_ms 5400000)"),
        ("0 */36 * * *", "step from 1 to 23, not '36'"),
        ("0 0 * */12 *", "month must have a step from 1 to 11, not '12'"),
        ("*/0 * * * *", "not '0'"),
        ("*/ * * * *", "not ''"),
        ("@daily", "as a line of crontab, write cron '0 0 * * *'"),
        ("@every 1h30m", "write interval_ms 5400000"),
        ("@reboot", "@reboot has no times"),
        ("@never", "@never is no nickname"),
        ("0 0 ? * 1", "day of month has no '?'; as a line of crontab, in crontabs weekdays count"),
        ("0 0 ? * MON", "as a line of crontab, write cron '0 0 * * MON'"),
        ("0 22-6 * * *", "hour 22-6 goes backwards; as a line of crontab, write cron "
         "'0 22-23,0-6 * * *'"),
        ("0 22-6/2 * * *", "write cron '0 22,0-6/2 * * *'"),
        ("0 0 * * FRI-MON", "write cron '0 0 * * FRI-SAT,SUN-MON'"),
        ("0 0 * * 7-1", "write cron '0 0 * * SUN-MON'"),
        ("0 0 * * 7-3", "write cron '0 0 * * SUN-WED'"),
        ("0 0 * * 7-0", "7-0 is Sunday alone or the whole week: write SUN or *"),
        ("0 7 */100,1-7 * MON", "write cron '0 7 * * MON#1'"),
        ("0 7 1-7,*/100 * MON", "write cron '0 7 1-7,1 * MON'"),
        ("H 4 * * *", "H is a random time: choose one, or use jitter_ms"),
        ("0~30 4 * * *", "0~30 is a random time"),
        ("CRON_TZ=Asia/Tokyo 0 4 * * *", "valid: as a line of crontab, write cron '0 4 * * *', "
         "zone 'Asia/Tokyo'"),
        ("TZ=GMT+5 0 4 * * *", "write Etc/GMT-5 for 5 h ahead of UTC"),
        ("0 6 * * 1-5 /bin/report --all", "write cron '0 6 * * MON-FRI'"),
        ("30 2 * * 7 root run-parts /etc", "write cron '30 2 * * SUN'"),
        ("cron(0 9 ? * 2-6 *)", "valid: as a line of AWS EventBridge (Sunday is 1), write cron "
         "'0 9 * * MON-FRI'"),
        ("weekly UTC", "as a line of systemd, write cron '0 0 * * MON'"),
        ("10-15", "as a line of systemd, write cron '0 0 15 10 *'"),
        ("0 3 * * 7 mongodump --out x", "as a line of crontab, write cron '0 3 * * SUN'"),
        ("rate(5 minutes)", "write interval_ms 300000"),
        ("rate(5 weeks)", "a rate is a number and minutes, hours or days"),
        ("0 9 ? * 2-6 *", "it has 2 readings, write the one that is meant: AWS EventBridge (Sunday "
         "is 1): cron '0 9 * * MON-FRI'; croniter (the second is the sixth field): cron "
         "'* 0 9 * * TUE-SAT'"),
        ("0 0 9 ? * 2-6", "Quartz (Sunday is 1): cron '0 9 * * MON-FRI'; Spring (Monday is 1): "
         "cron '0 9 * * TUE-SAT'"),
        ("0 0 9 ? * MON-FRI", "Quartz (Sunday is 1) or Spring (Monday is 1), write cron "
         "'0 9 * * MON-FRI'"),
        ("0 0 9 ? * 6L", "Quartz (Sunday is 1): cron '0 9 * * 5L'; Spring (Monday is 1): cron "
         "'0 9 * * 6L'"),
        ("0 0 9 ? * 2#1 2027-2028", "write cron '0 9 * * MON#1', start_ms 1798761600000, end_ms "
         "1861920000000"),
        ("0 0 9 ? * 2#1 2027/2", "the years '2027/2' are no range"),
        ("*/5 * * * * 30", "croniter (the second is the sixth field), write cron '30 */5 * * * *'"),
        ("Mon..Fri *-*-* 09:00", "as a line of systemd, write cron '0 9 * * MON-FRI'"),
        ("weekly", "write cron '0 0 * * MON'"),
        ("FREQ=DAILY;COUNT=3", "as a line of iCalendar, write rrule 'FREQ=DAILY;COUNT=3'"),
        ("0 0 * * 1#6", "day of week has #1 to #5, not #6"),
        ("0 0 * * 9L", "not '9'"),
        ("0 9 * * 1-5 2026", "AWS EventBridge (Sunday is 1): cron '0 9 * * SUN-THU', start_ms "
         "1767225600000, end_ms 1798761600000; crontab: cron '0 9 * * MON-FRI', start_ms"),
        ("0 0 9 * * 1 2026", "Quartz (Sunday is 1): cron '0 9 * * SUN', start_ms 1767225600000"),
    ],
)  # fmt: skip
def test_an_error_names_the_value_and_the_way_out(text: str, words: str) -> None:
    """Each error once; it is about the member `cron`, and shows the whole text."""
    with pytest.raises(MemberError) as error:
        check_cron(text)
    assert error.value.field == "cron"
    assert str(error.value).startswith(f"cron {text!r} is not valid: ")
    assert words in str(error.value)


@pytest.mark.parametrize("word", ["MONDAY", "tues", "Thurs", "Wednesdays", "monday-friday"])
def test_a_long_name_of_a_weekday_is_no_command(word: str) -> None:
    """Six fields with the second first are no line of five with a command behind them."""
    with pytest.raises(MemberError, match="day of week must lie") as error:
        check_cron(f"0 0 9 * * {word}")
    assert "crontab" not in str(error.value)


@pytest.mark.parametrize("text", ["0 0 30 2 *", "0 0 31 4,6 *"])
def test_a_day_that_no_month_has_never_occurs(text: str) -> None:
    """The only thing that cronsim refuses of what passes here."""
    check_cron(text)
    with pytest.raises(MemberError, match="it never occurs"):
        check_timing({"cron": text})


@pytest.mark.parametrize(
    "text",
    [
        "*/59 * * * *",
        "0 0 L * *",
        "0 0 LW * *",
        "0 0 L/2 * *",
        "0 0 * * 5L",
        "0 0 * * fri#2,1-3/2,5#01",
        "0 0 1-7,15 jan-mar,DEC *",
        "5/10 30 2 29 2 7",
        "*,5 * * * */7",
        "0 0 L-3,15W,L-2W,LW,L,3 * MON",
    ],
)
def test_every_form_of_a_term_passes(text: str) -> None:
    """Nothing that cronsim can do is lost."""
    check_timing({"cron": text})


_TERMS = st.one_of(
    st.sampled_from(["*", "L", "LW", "LL", "?", "MON", "JAN", "MONL", "MON#1", "\u0661", "15W"]),
    st.integers(0, 60).map(str),
    st.from_regex(r"[0-9]{1,2}[-#/L]([0-9]{1,2}(/[0-9])?)?", fullmatch=True).map(
        # Of a step that is longer than its field cronsim says nothing.
        lambda text: re.sub(r"/\d+", "/3", text)
    ),
)
_FIELDS = st.lists(_TERMS, min_size=1, max_size=3).map(",".join)


@given(st.integers(5, 6), st.integers(-5, -1), _FIELDS)
def test_cronsim_agrees(count: int, place: int, field: str) -> None:
    """What passes can be parsed, unless it never occurs; all else cronsim refuses too. The steps
    here are short.
    """
    fields = ["*"] * count
    fields[place] = field
    text = " ".join(fields)
    try:
        CronSim(text, EPOCH)
        why = ""
    except CronSimError as error:
        why = str(error)
    try:
        check_cron(text)
        # The weekday nearest to a day is ours.
        assert why in ("", "Bad day-of-month") or "W" in text
    except MemberError:
        assert why
