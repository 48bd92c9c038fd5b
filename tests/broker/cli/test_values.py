"""Durations and times, as they are written and as they are shown."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.cli.values import (
    bar,
    parse_lifetime,
    parse_span,
    parse_time,
    span_text,
    time_text,
    value_text,
)

NOW_MS = 1_790_000_000_123


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        *(("0", 0), ("500ms", 500), ("90s", 90_000), ("2h", 7_200_000)),
        *(("1d12h", 129_600_000), ("1.5s", 1_500), ("2w", 1_209_600_000), ("1m1ms", 60_001)),
    ],
)
def test_durations(text: str, span_ms: int) -> None:
    assert parse_span(text) == span_ms


@pytest.mark.parametrize("text", ["", "90", "1.5", "-1", "s", "2hours", "2h 3m", "-2h", "1e3s"])
def test_what_is_no_duration(text: str) -> None:
    """A number alone says nothing of its unit, so it is not taken for either."""
    with pytest.raises(ValueError, match="write a number and a unit, such as 500ms, 90s"):
        parse_span(text)


def test_a_lifetime() -> None:
    assert (parse_lifetime("never"), parse_lifetime("1s")) == (-1, 1_000)


@given(st.integers(0, 10**13))
def test_a_duration_is_read_as_it_is_shown(span_ms: int) -> None:
    assert parse_span(span_text(span_ms)) == span_ms


@given(st.integers(0, 4_102_444_800_000))
def test_a_time_is_read_as_it_is_shown(at_ms: int) -> None:
    assert parse_time(time_text(at_ms), NOW_MS) == at_ms


def test_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zone counts; without one it is the local zone, of that day of the year."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert time_text(parse_time("2026-12-24T09:00", NOW_MS)) == "2026-12-24T08:00:00.000Z"
        assert time_text(parse_time("2026-07-24", NOW_MS)) == "2026-07-23T22:00:00.000Z"
        assert time_text(parse_time("2026-12-24T09:00Z", NOW_MS)) == "2026-12-24T09:00:00.000Z"
        spoken = parse_time("2026-12-24T09:00:00.250+05:30", NOW_MS)
        assert time_text(spoken) == "2026-12-24T03:30:00.250Z"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert parse_time("now", NOW_MS) == NOW_MS
    assert parse_time("+2h", NOW_MS) == NOW_MS + 7_200_000
    assert parse_time("-1d", NOW_MS) == NOW_MS - 86_400_000


@pytest.mark.parametrize(
    "text", ["1790000000", "1790000000123", "soon", "24.12.2026", "0001-01-01", ""]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="write an ISO time, such as 2026-12-24T09:00"):
        parse_time(text, NOW_MS)


def test_hints_at_what_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A duration for a time, a time without a date, units in capitals."""
    with pytest.raises(ValueError, match=r"2h is a duration: write \+2h or -2h, counted from now"):
        parse_time("2h", NOW_MS)
    with pytest.raises(ValueError, match="'2H' is not a duration: units are lower case; write a"):
        parse_span("2H")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        # It is 16:13 on 2026-09-21 there.
        for text, meant in (
            ("18:00", "2026-09-21T18:00"),
            ("16:13", "2026-09-22T16:13"),
            ("9:05", "2026-09-22T09:05"),
        ):
            with pytest.raises(ValueError, match=f"{text} has no date: write {meant} for the next"):
                parse_time(text, NOW_MS)
    finally:
        monkeypatch.undo()
        time.tzset()
    with pytest.raises(ValueError, match="'25:00' is not a time: write an ISO time"):
        parse_time("25:00", NOW_MS)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        *(("deliver_at_ms", 1, "1970-01-01T00:00:00.001Z"), ("open_until_ms", 0, "-")),
        *(("failing_since_ms", 1, "1970-01-01T00:00:00.001Z"), ("failing_since_ms", 0, "-")),
        *(("held_ms", 0, "0s"), ("lease_ms", 30_000, "30s")),
        *(("ttl_ms", -1, "never"), ("accepted_ms", -2_000, "-2s"), ("due_to", 1, time_text(1))),
        *(("oldest_due_ms", None, "-"), ("paused", True, "yes"), ("tags", ["a", "b"], "a,b")),
        ("backoff", {"first_ms": 1_000, "factor": 2.0}, "first=1s,factor=2.0"),
        ("counts", {"cancelled": 1}, "cancelled=1"),
        ("deliver_at_ms", 2**62, f"{2**62}ms"),
    ],
)
def test_values(name: str, value: object, shown: str) -> None:
    assert value_text(name, value) == shown


def test_bars() -> None:
    """Whole columns and eighths; a small share is not lost."""
    shares = [0, 0.001, 0.25, 0.5, 0.56, 1]
    assert [bar(share, 2) for share in shares] == ["", "▏", "▌", "█", "█▏", "██"]
