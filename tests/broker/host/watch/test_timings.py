"""Requests are counted by face and call; slow ones are logged by call."""

from __future__ import annotations

import pytest

from delaylog.broker.host.watch.timings import OTHER, SERIES_MAX, Timings, note_recovery


def test_slow_calls_do_not_hide_each_other(caplog: pytest.LogCaptureFixture) -> None:
    """One line of a call in five seconds, with its request; all are counted."""
    timings = Timings()
    timings.slow.threshold_s = 1.0
    for number in range(3):
        timings.note_request("http", "receive", 2.5, wait_ms=1_000, request_id=f"r{number}")
    timings.note_request("http", "receive", 1.5, wait_ms=1_000)
    timings.note_request("http", "send", 1.0, request_id="s")
    timings.note_request("http", "send", 0.9)
    logged = [(each.getMessage(), each.__dict__["request_id"]) for each in caplog.records]
    assert logged == [
        ("slow request: receive took 2.500 s", "r0"),
        ("slow request: send took 1.000 s", "s"),
    ]
    assert timings.slow.counts == {"http": 4}
    assert timings.requests["http", "receive"].count == 4


def test_names_without_number_share_a_series(caplog: pytest.LogCaptureFixture) -> None:
    timings = Timings()
    for number in range(2 * SERIES_MAX):
        timings.note_request("http", f"/{number}", 2.0)
    assert len(timings.requests) == SERIES_MAX + 1
    assert timings.requests["http", OTHER].count == SERIES_MAX
    assert len(caplog.records) == SERIES_MAX + 1
    timings.note_request("http", "/1", 0.1)
    assert timings.requests["http", "/1"].count == 2


def test_each_recovery_counts() -> None:
    timings = Timings()
    for seconds in (0.2, 70.0):
        note_recovery(timings.recovery, {"replay": seconds, "total": seconds})
    assert timings.recovery["total"].counts[-3:] == [0, 1, 0]
    assert timings.recovery["replay"].sum == pytest.approx(70.2)
