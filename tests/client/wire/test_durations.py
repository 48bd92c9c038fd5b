"""Durations become milliseconds, rounded up; wrong ones are refused with the argument's name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from delaylog.client.keywords import ReceiveKeywords
from delaylog.client.wire.checks import check_keywords
from delaylog.client.wire.times import duration_ms, duration_s, in_ms, span_of

DAY = timedelta(days=1)


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
