"""Times as callers say them: four ways, one at a time, and never earlier than was meant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.client.wire.due import due_members, due_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE = EPOCH.replace(tzinfo=None)


@given(
    st.datetimes(NAIVE + timedelta(days=1), NAIVE + timedelta(days=80_000)), st.integers(-20, 20)
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
    assert due_members(delay_ms=5) == {"delay_ms": 5}
    assert due_members(at=EPOCH + timedelta(seconds=1)) == {"deliver_at_ms": 1000}
    assert due_members(delay=timedelta(microseconds=1)) == {"delay_ms": 1}


@pytest.mark.parametrize(
    ("times", "kind", "words"),
    [
        ({"delay_ms": 1, "deliver_at_ms": 1}, ValueError, "exactly one"),
        ({"delay_ms": -1}, ValueError, "negative"),
        ({"delay": timedelta(seconds=-1)}, ValueError, "negative"),
        ({"at": datetime(1969, 1, 1, tzinfo=UTC)}, ValueError, "negative"),
        ({"at": NAIVE}, ValueError, "time zone"),
        ({"delay_ms": 1.5}, TypeError, "whole number"),
        ({"delay_ms": True}, TypeError, "whole number"),
        ({"at": 5}, TypeError, "datetime"),
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
