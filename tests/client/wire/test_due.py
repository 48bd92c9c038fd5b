"""Times as callers say them: four ways, one at a time, and never earlier than was meant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.client.wire.times import due_members, due_of, list_query

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE = EPOCH.replace(tzinfo=None)
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
