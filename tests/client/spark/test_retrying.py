"""The waits between tries: tables of `Retry-After` values and of the waits that follow."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pyspark_delaylog.broker_http import retry_after_s, wait_s

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("2", 2.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("", None),
        (None, None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("Thu, 01 Jan 2026 12:00:07 GMT", 7.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("Thu, 01 Jan 2026 12:00:07 -0000", 7.0),
    ],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert retry_after_s(header, NOW) == seconds


def test_the_broker_says_how_long_up_to_a_cap() -> None:
    assert wait_s(1, 2.0, 50, 0.0) == 2.0
    assert 2.0 < wait_s(1, 2.0, 50, 0.9) < 2.2
    assert wait_s(1, 3_600.0, 50, 0.0) == 30.0


def test_without_a_word_the_wait_doubles_up_to_a_cap_and_is_spread() -> None:
    assert [wait_s(tries, None, 100, 0.0) for tries in (1, 2, 3, 4)] == [0.05, 0.1, 0.2, 0.4]
    assert wait_s(1, None, 100, 0.999) == pytest.approx(0.1, rel=0.01)
    assert wait_s(1_000, None, 100, 0.0) == 5.0
