"""Recurring schedules in the embedded broker, on a clock that the test moves."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaylog.broker.embedded import ManualClock
from delaylog.broker.rules.schedules.zones import PACKAGED
from delaylog.client import BadRequest


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


def test_what_is_called_off_in_the_last_second_sends_nothing(open_embedded: Any) -> None:
    """A pause, a deletion and another timing half a second before nine; a change back fires."""
    clock = ManualClock(int(datetime(2027, 1, 1, 8, 59, 58, tzinfo=UTC).timestamp() * 1_000))
    broker = open_embedded(clock=clock, fsync="never")
    plain = broker.broker()
    nine = "0 9 * * *"
    for name in ("paused", "gone", "put", "changed", "back", "equal"):
        plain.put_schedule("t", name, name, cron=nine)
    clock.advance(ms=1_500)
    assert plain.schedule("t", "paused")["n"] == 1, "it was sent ahead"
    assert plain.pause_schedule("t", "paused")["n"] == 0
    plain.drop_schedule("t", "gone")
    plain.put_schedule("t", "put", "put", cron="0 10 * * *")
    plain.update_schedule("t", "changed", cron="0 10 * * *")
    plain.pause_schedule("t", "back")
    plain.resume_schedule("t", "back")
    plain.put_schedule("t", "equal", "equal", cron=nine)
    clock.advance(seconds=1)
    assert sorted(message.text for message in broker.receive("t", max=10)) == ["back", "equal"]


def test_a_change_in_the_last_second_reaches_the_message(open_embedded: Any) -> None:
    clock = ManualClock(int(datetime(2027, 1, 1, 8, 59, 58, tzinfo=UTC).timestamp() * 1_000))
    broker = open_embedded(clock=clock, fsync="never")
    plain = broker.broker()
    plain.put_schedule("t", "s", "old", cron="0 9 * * *")
    clock.advance(ms=1_500)
    plain.update_schedule("t", "s", body="new")
    clock.advance(seconds=1)
    assert [message.text for message in broker.receive("t", max=10)] == ["new"]
    assert plain.schedule("t", "s")["n"] == 1


def test_a_zone_that_the_release_lacks_is_said_everywhere(
    open_embedded: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In answers, refusals and one line of the log."""
    clock = ManualClock(int(datetime(2027, 1, 1, tzinfo=UTC).timestamp() * 1_000))
    broker = open_embedded(clock=clock, fsync="never")
    plain = broker.broker()
    for name in ("a", "b"):
        plain.put_schedule("t", name, name, cron="0 9 * * *", zone="Europe/Berlin")
    with monkeypatch.context() as lacking, caplog.at_level(logging.WARNING, "delaylog.embedded"):
        lacking.setattr(PACKAGED, "names", PACKAGED.names - {"Europe/Berlin"})
        lacking.setattr(PACKAGED, "_loaded", {})
        clock.advance(days=1)
        clock.advance(days=1)
        assert broker.receive("t", max=10) == []
        for one in [*plain.schedules("t")["schedules"], plain.schedule("t", "a")]:
            assert "has no zone 'Europe/Berlin'" in one["explain"]
        for call in (plain.run_schedule, plain.preview_schedule):
            with pytest.raises(BadRequest, match="has no zone 'Europe/Berlin'"):
                call("t", "a")
        assert plain.pause_schedule("t", "a")["state"] == "paused"
        plain.drop_schedule("t", "a")
    assert len([each for each in caplog.records if "tzdata" in each.getMessage()]) == 1


def test_an_interval_counts_from_the_put_by_any_clock(open_embedded: Any) -> None:
    """Also by one that is before the first time that a caller may give."""
    broker = open_embedded(clock=ManualClock(10_000), fsync="never")
    put = broker.broker().put_schedule("t", "s", "tick", interval=timedelta(seconds=1))
    assert put["start_ms"] == 10_000
