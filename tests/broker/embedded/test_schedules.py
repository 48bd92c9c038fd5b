"""Recurring schedules in the embedded broker, on a clock that the test moves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from delaylog.broker.embedded import ManualClock


def test_a_year_on_the_test_clock(open_embedded: Any) -> None:
    """The embedded broker fires daily over both clock changes, at nine in Berlin."""
    clock = ManualClock(int(datetime(2027, 1, 1, tzinfo=UTC).timestamp() * 1_000))
    broker = open_embedded(clock=clock, fsync="never")
    plain = broker.broker()
    plain.put_schedule("t", "nine", "x", cron="0 9 * * *", zone="Europe/Berlin")
    hours = set()
    for _ in range(365):
        clock.advance(days=1)
        (message,) = broker.receive("t", max=10)
        due = datetime.fromtimestamp(int(message.headers["due"]) / 1_000, UTC)
        hours.add(due.hour)
        message.ack()
    assert hours == {7, 8}
    assert plain.schedule("t", "nine")["n"] == 365
