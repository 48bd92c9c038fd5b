"""Durations become milliseconds, rounded up; wrong ones are refused with the argument's name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from delaylog.client.wire.durations import duration_ms, in_numbers


@pytest.mark.parametrize(
    ("span", "ms", "expected"),
    [
        (None, None, None),
        (None, 5, 5),
        (timedelta(seconds=2), None, 2_000),
        (timedelta(microseconds=1), None, 1),
        (timedelta.max, None, 86_400_000_000_000_000),
    ],
)
def test_a_duration_is_milliseconds(
    span: timedelta | None, ms: int | None, expected: int | None
) -> None:
    assert duration_ms("lease", span, ms) == expected


@pytest.mark.parametrize(
    ("span", "ms", "kind", "says"),
    [
        (timedelta(1), 1, ValueError, "give lease or lease_ms, not both"),
        (
            5,
            None,
            TypeError,
            r"lease is a timedelta, not int; .* 5 seconds are timedelta\(seconds=5\)",
        ),
        ("5", None, TypeError, "lease is a timedelta, not str; milliseconds are lease_ms$"),
        (True, None, TypeError, "lease is a timedelta, not bool; milliseconds are lease_ms$"),
        (None, 1.5, TypeError, "lease_ms is a whole number of milliseconds, not 1.5"),
        (None, True, TypeError, "lease_ms is a whole number of milliseconds, not bool"),
        (None, -1, ValueError, "lease_ms is not negative: -1"),
        (timedelta(-1), None, ValueError, "lease is not negative: -1 day"),
    ],
)
def test_a_wrong_duration_is_refused(
    span: object, ms: object, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        duration_ms("lease", span, ms)  # type: ignore[arg-type]


def test_keywords_are_numbers_or_timedeltas() -> None:
    given = {"lease": timedelta(microseconds=1), "grace": timedelta(milliseconds=1_500), "n": 2}
    assert in_numbers(given, "lease_ms", "grace_s") == {"lease_ms": 1, "grace_s": 1.5, "n": 2}
    assert in_numbers({"lease_ms": 5, "grace": None}, "lease_ms", "grace_s") == {"lease_ms": 5}


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"ttl": timedelta(-1)}, ValueError, "ttl is not negative: -1 day, 0:00:00"),
        ({"ttl": timedelta(1), "ttl_ms": 1}, ValueError, "give ttl or ttl_ms, not both"),
        ({"ttl": 5}, TypeError, "ttl is a timedelta, not int; milliseconds are ttl_ms"),
    ],
)
def test_wrong_keywords_are_refused(
    given: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        in_numbers(given, "ttl_ms")
