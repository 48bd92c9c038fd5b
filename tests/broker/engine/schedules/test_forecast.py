"""The firings of a forecast, against counting each instant of each schedule."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.views import counts
from delaylog.broker.engine.views.counts import MINUTE_MS, Firings, Forecast
from delaylog.broker.rules.schedules.timing import Timing
from tests.broker.engine.host import HOUR
from tests.broker.engine.schedules.rig import ScheduleHost
from tests.broker.rules.schedules.walk import walk


def forecast(host: ScheduleHost, minutes: int = 60, hours: int = 24) -> Forecast:
    counted = Forecast(host.engine.state, host.topic, host.now_ms, minutes=minutes, hours=hours)
    host.engine.run_inline(counted.work())
    return counted


def instants(host: ScheduleHost, timing: Timing, to_ms: int, most: int = 10**9) -> list[int]:
    """The instants after now and before a time."""
    return list(islice(walk(timing, host.now_ms, to_ms), most))


MEMBERS: list[dict[str, Any]] = [
    {"cron": "*/7 * * * *", "zone": "Australia/Lord_Howe"},
    {"cron": "*/7 * * * *", "zone": "Australia/Lord_Howe", "overlap": "skip"},
    {"cron": "30 2 * * *", "zone": "Europe/Berlin"},
    {"rrule": "FREQ=DAILY;BYHOUR=1,13", "zone": "UTC"},
    {"interval_ms": 90_001},
    {"interval_ms": 11 * HOUR, "count": 2},
    {"cron": "* * * * *", "count": 5},
    {"interval_ms": MINUTE_MS, "jitter_ms": 1_000, "count": 15},
]


def test_each_slot_has_the_instants_that_fall_into_it(host: ScheduleHost) -> None:
    for number, members in enumerate(MEMBERS):
        host.put(f"s{number}", **members)
    host.put("paused", interval_ms=1_000)
    host.pause_one("paused")
    host.advance(10 * MINUTE_MS + 31_000)
    counted = forecast(host, minutes=70, hours=30)
    end_ms = (host.now_ms // HOUR + 30) * HOUR
    expected: list[int] = []
    for number in range(len(MEMBERS)):
        one = host.one(f"s{number}")
        count, sent = one.spec.timing.count, one.progress.n
        left = 10**9 if count is None else count - sent
        ahead = [at for at in instants(host, one.spec.timing, end_ms) if at < one.progress.next_ms]
        # What was sent ahead is a message, not a firing.
        expected += instants(host, one.spec.timing, end_ms, left + len(ahead))[len(ahead) :]
    assert len(expected) > 1_000
    for slots, length_ms in ((counted.minutes, MINUTE_MS), (counted.hours, HOUR)):
        for slot in slots:
            first, last = slot["from_ms"], slot["from_ms"] + length_ms
            assert slot["firings"] == sum(first <= at < last for at in expected), slot
    # The expression that fires five times has ended.
    assert (counted.firings.schedules, counted.firings.left) == (len(MEMBERS) - 1, False)
    assert counted.firings.until_ms == end_ms


def test_a_topic_without_schedules_has_no_firings(host: ScheduleHost) -> None:
    counted = forecast(host, minutes=1, hours=0)
    assert [slot["firings"] for slot in counted.minutes] == [0]
    assert counted.firings.schedules == 0
    assert forecast(host, minutes=0, hours=0).minutes == []


def test_more_schedules_than_are_counted(
    host: ScheduleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "SCHEDULES_MAX", 200)
    for number in range(201):
        host.put(f"s{number:03}", interval_ms=HOUR)
    counted = forecast(host)
    assert (counted.firings.schedules, counted.firings.left) == (200, True)
    assert counted.hours[1]["firings"] == 200


def test_more_instants_than_are_computed(
    host: ScheduleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the time that is named each firing is counted; equal timings cost one."""
    monkeypatch.setattr(counts, "INSTANTS_MAX", 100)
    for number in range(40):
        host.put(f"s{number}", cron="* * * * *")
    counted = forecast(host, minutes=120)
    until_ms = counted.firings.until_ms
    assert 99 * MINUTE_MS <= until_ms - host.now_ms <= 101 * MINUTE_MS
    for slot in counted.minutes[1:]:
        assert slot["firings"] == (40 if slot["from_ms"] < until_ms else 0)


def test_work_is_in_slices(host: ScheduleHost) -> None:
    """No step of a forecast of dense expressions computes more than a page or 50 instants."""
    for number in range(150):
        host.put(f"s{number}", cron=f"{number % 60} * * * * *")
    edges = np.array([host.now_ms, host.now_ms + HOUR], np.int64)
    steps = sum(1 for _ in Firings(host.engine.state, host.topic, edges, host.now_ms).work())
    assert steps >= 60 * 60 // 50
