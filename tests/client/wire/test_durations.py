"""Durations become milliseconds, rounded up; wrong ones are refused with the argument's name."""

from __future__ import annotations

from datetime import timedelta

import pytest

from delaylog.client.wire.durations import duration_ms


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
        (5, None, TypeError, "lease is a timedelta, not int"),
        (None, 1.5, TypeError, "lease_ms is a whole number of milliseconds, not float"),
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
