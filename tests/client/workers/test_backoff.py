"""Waits by attempts and chance, as plain numbers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from delaylog.client.workers.consumer import Backoff


def test_each_wait_is_a_factor_longer_up_to_the_longest() -> None:
    backoff = Backoff(first=timedelta(milliseconds=100), max=timedelta(seconds=1), factor=3)
    assert [backoff.delay_ms(attempts, 0.5) for attempts in (1, 2, 3, 4)] == [100, 300, 900, 1_000]


def test_jitter_takes_away_by_chance_and_never_adds() -> None:
    backoff = Backoff(first=timedelta(milliseconds=100), max=timedelta(seconds=1), jitter=0.5)
    assert backoff.delay_ms(1, 0.0) == 100
    assert backoff.delay_ms(1, 0.5) == 75
    assert backoff.delay_ms(2, 1.0) == 100


def test_many_attempts_do_not_overflow() -> None:
    assert Backoff(factor=10).delay_ms(65_535, 0.0) == 300_000


@pytest.mark.parametrize("factor", [70_000, 1e300, float("inf")])
def test_a_huge_factor_does_not_overflow(factor: float) -> None:
    """Or the failed message would never be settled."""
    assert Backoff(factor=factor).delay_ms(1, 0.0) == 1_000
    assert Backoff(factor=factor).delay_ms(100, 0.0) == 300_000
    assert Backoff(first=timedelta(0), factor=factor).delay_ms(100, 0.0) == 0


def test_none_at_all_is_a_wait_too() -> None:
    assert Backoff(first=timedelta(0), max=timedelta(0)).delay_ms(7, 0.0) == 0


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"first": timedelta(5), "max": timedelta(4)}, "first <= max"),
        ({"first": timedelta(-1)}, "0 <= first"),
        ({"factor": 0.5}, "factor is at least 1"),
        ({"factor": float("nan")}, "factor is at least 1"),
        ({"jitter": 1.5}, "between 0 and 1"),
    ],
)
def test_what_is_no_wait_is_refused(members: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Backoff(**members)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError, match="a backoff's first is a timedelta, not int"):
        Backoff(first=100)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="max is a timedelta, not int; 5 seconds are"):
        Backoff(max=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a backoff's jitter is a number, not str"):
        Backoff(jitter="1")  # type: ignore[arg-type]
