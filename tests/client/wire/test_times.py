"""Durations and due times as callers say them: rounded up, never earlier than was meant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.client.keywords import ReceiveKeywords
from delaylog.client.wire.checks import check_keywords
from delaylog.client.wire.times import (
    due_members,
    due_of,
    duration_ms,
    duration_s,
    in_ms,
    list_query,
    span_of,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE = EPOCH.replace(tzinfo=None)
DAY = timedelta(days=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@given(
    st.datetimes(NAIVE + timedelta(days=12_000), NAIVE + timedelta(days=80_000)),
    st.integers(-20, 20),
)
def test_a_moment_is_rounded_up_to_the_millisecond(moment: datetime, hours: int) -> None:
    at = moment.replace(tzinfo=timezone(timedelta(hours=hours)))
    due = due_of(at=at)
    assert due is not None
    late = EPOCH + timedelta(milliseconds=due[0]) - at
    assert not due[1]
    assert timedelta(0) <= late < timedelta(milliseconds=1)


@given(st.timedeltas(timedelta(0), timedelta(days=9_000)))
def test_a_delay_is_rounded_up_to_the_millisecond(delay: timedelta) -> None:
    due = due_of(delay=delay)
    assert due is not None
    assert due[1]
    assert timedelta(0) <= timedelta(milliseconds=due[0]) - delay < timedelta(milliseconds=1)


def test_as_members_of_a_request() -> None:
    assert due_members() == {}
    assert due_members(deliver_at_ms=0) == {"deliver_at_ms": 0}
    assert due_members(deliver_at_ms=10**12) == {"deliver_at_ms": 10**12}
    assert due_members(at=EPOCH + timedelta(seconds=10**9)) == {"deliver_at_ms": 10**12}
    assert due_members(delay=timedelta(microseconds=1)) == {"delay_ms": 1}


def test_what_is_past_means_now() -> None:
    """Negative delays, and the epoch itself."""
    assert due_members(delay=timedelta.min) == {"delay_ms": 0}
    assert due_members(at=EPOCH) == {"deliver_at_ms": 0}


@given(st.integers(1, 10**12 - 1) | st.integers(-(10**12), -1))
def test_seconds_are_no_milliseconds(seconds: int) -> None:
    wrong = "negative" if seconds < 0 else "before 2001-09-09"
    with pytest.raises(ValueError, match=f"deliver_at_ms {seconds} is {wrong}: give"):
        due_of(deliver_at_ms=seconds)


def test_a_bound_of_a_list_is_a_number_or_a_datetime() -> None:
    at = EPOCH + timedelta(seconds=10**9, microseconds=1)
    assert list_query({"due_from": at, "due_to_ms": 10**12, "tag": "a"}) == {
        "due_from": 10**12 + 1,
        "due_to": 10**12,
        "tag": "a",
        "bodies": None,
    }
    assert list_query({"due_from": EPOCH, "due_to_ms": 0}) == {
        "due_from": 0,
        "due_to": 0,
        "bodies": None,
    }


@pytest.mark.parametrize(
    ("filter", "kind", "words"),
    [
        ({"due_from": NOON, "due_from_ms": 10**12}, ValueError, "due_from or due_from_ms, not"),
        ({"due_to_ms": 1_000_000}, ValueError, "due_to_ms 1000000 is before 2001-09-09: give"),
        ({"due_to": 10**12}, TypeError, "due_to is a datetime .*, not int.* due_to_ms"),
        ({"due_to": NAIVE}, ValueError, "due_to has no time zone"),
        ({"due_from": EPOCH - timedelta(1)}, ValueError, "due_from 1969-12-31.* is before 2001"),
        ({"due_from_ms": "soon"}, TypeError, "due_from_ms is a whole number"),
        ({"due": 1}, TypeError, "a list has no argument 'due'"),
    ],
)
def test_a_wrong_bound_of_a_list_is_refused(filter: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        list_query(filter)


@pytest.mark.parametrize(
    ("times", "kind", "words"),
    [
        ({"delay": timedelta(1), "deliver_at_ms": 1}, ValueError, "exactly one"),
        ({"at": NAIVE}, ValueError, "time zone"),
        ({"deliver_at_ms": 1.5}, TypeError, "whole number"),
        ({"deliver_at_ms": True}, TypeError, "whole number"),
        ({"at": 5}, TypeError, "datetime"),
        (
            {"at": "2026-01-01T09:00Z"},
            TypeError,
            "at is a datetime with a time zone, not str: datetime.fromisoformat reads a text",
        ),
        ({"delay": 5}, TypeError, "timedelta"),
    ],
)
def test_what_is_no_time_is_refused(
    times: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        due_of(**times)


def test_the_longest_delay_there_is_can_be_said() -> None:
    """What is over the horizon the broker refuses; it is no overflow here."""
    assert due_of(delay=timedelta.max) == (86_399_999_999_999_999 + 1, True)
    assert due_of(delay=timedelta(milliseconds=7)) == (7, True)


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (None, None),
        (timedelta(seconds=2), 2_000),
        (timedelta(microseconds=1), 1),
        (timedelta.max, 86_400_000_000_000_000),
    ],
)
def test_a_duration_is_milliseconds(span: timedelta | None, expected: int | None) -> None:
    assert duration_ms("lease", span) == expected


@pytest.mark.parametrize(
    ("span", "kind", "says"),
    [
        (5, TypeError, r"lease is a timedelta, not int; 5 seconds are timedelta\(seconds=5\)$"),
        (0.5, TypeError, r"not float; 0.5 seconds are timedelta\(seconds=0.5\)$"),
        ("5", TypeError, "lease is a timedelta, not str$"),
        (True, TypeError, "lease is a timedelta, not bool$"),
        (timedelta(-1), ValueError, "lease is not negative: -1 day"),
    ],
)
def test_a_wrong_duration_is_refused(span: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        duration_ms("lease", span)
    with pytest.raises(kind, match=says):
        in_ms({"lease": span}, "lease")


def test_seconds_have_bounds() -> None:
    assert duration_s("timeout", None) is None
    assert duration_s("timeout", timedelta(milliseconds=1_500)) == 1.5
    assert duration_s("grace", timedelta(0), or_zero=True) == 0
    for wrong in (timedelta(0), -DAY, 2 * DAY):
        with pytest.raises(ValueError, match="timeout lies above 0 s and up to 86400 s"):
            duration_s("timeout", wrong)
    with pytest.raises(TypeError, match="timeout is a timedelta, not int"):
        duration_s("timeout", 5)  # type: ignore[arg-type]


def test_keywords_become_members_of_the_wire() -> None:
    """None stays, a negative delay is none, and the longest ttl never ends."""
    given = {"lease": timedelta(microseconds=1), "delay": -DAY, "ttl": timedelta.max, "n": 2}
    members = {"lease_ms": 1, "delay_ms": 0, "ttl_ms": -1, "n": 2}
    assert in_ms(given, "lease", "delay", "ttl", "wait") == members
    assert in_ms({"lease": None}, "lease") == {"lease_ms": None}


def test_milliseconds_become_a_duration() -> None:
    """What no timedelta can hold is refused by the broker; as a ttl it does not mean never."""
    assert span_of(1_500) == timedelta(seconds=1.5)
    assert span_of(2**70) < timedelta.max
    assert span_of(-(2**63)) == timedelta.min
    assert in_ms({"ttl": span_of(2**70)}, "ttl") == {"ttl_ms": 86_399_999_999_999_999}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("wait_ms", r"receive has no argument 'wait_ms': write wait=timedelta\(milliseconds=…\)$"),
        ("timeout_s", r"no argument 'timeout_s': write timeout=timedelta\(seconds=…\)$"),
        ("own_ms", r"no argument 'own_ms': write own=timedelta\(milliseconds=…\)$"),
        ("age_ms", "receive has no argument 'age_ms'; it has own, timeout, "),
        ("waits", "receive has no argument 'waits'; it has"),
    ],
)
def test_an_old_keyword_is_answered_with_its_new_form(name: str, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        check_keywords("receive", [name], ReceiveKeywords, "own")
