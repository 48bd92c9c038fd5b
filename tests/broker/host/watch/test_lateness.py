"""The lag of the loop, causes of lateness that the host sees, and lateness by minutes.

A stall shows in the histogram, and its code in the trace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.engine.late.timeline import Span, Timeline
from delaylog.broker.engine.watch.histogram import BOUNDS_MS
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.watch import lateness
from delaylog.broker.host.watch.lateness import (
    BOUNDS,
    MINUTE_MS,
    RECENT,
    LoopLag,
    RecentLateness,
    StallTrace,
    note_started,
    watch_causes,
)
from tests.broker.conftest import Broker
from tests.broker.engine.host import Host
from tests.broker.host.running_node import running
from tests.waiting import await_that

TIMER_SECONDS = 0.05


def start(lag: LoopLag) -> None:
    """Sample the running loop, with a timer as a node has one."""

    def fire() -> None:
        lag.timer_fired()
        arm()

    def arm() -> None:
        lag.expect_timer(TIMER_SECONDS)
        asyncio.get_running_loop().call_later(TIMER_SECONDS, fire)

    lag.start()
    arm()


async def be_busy(seconds: float) -> None:
    """Have the loop sampled every ten milliseconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(50_000))
        await asyncio.sleep(0.001)


def hold_the_loop() -> None:
    time.sleep(0.15)


async def test_a_stall_is_seen_with_its_length() -> None:
    lag = LoopLag(REAL)
    start(lag)
    await be_busy(0.1)
    hold_the_loop()
    await asyncio.sleep(0.1)
    lag.stop()
    assert lag.max_seconds >= 0.13
    assert sum(lag.histogram.counts[: BOUNDS.index(0.1) + 1]) >= 1
    assert sum(lag.histogram.counts[BOUNDS.index(0.1) :]) >= 1


def test_an_idle_loop_is_sampled_less_often() -> None:
    async def scene() -> tuple[int, int]:
        lag = LoopLag(REAL)
        start(lag)
        await asyncio.sleep(0.5)
        idle = sum(lag.histogram.counts)
        await be_busy(0.5)
        lag.stop()
        return idle, sum(lag.histogram.counts) - idle

    # A busy machine leaves out samples of the busy loop.
    for _ in range(5):
        idle, busy = asyncio.run(scene())
        assert 1 <= idle <= 11, "one at once, then one a tick"
        if busy > 2 * idle:
            return
    raise AssertionError(busy)


async def test_a_tick_that_holds_an_idle_loop_is_seen() -> None:
    lag = LoopLag(REAL)
    trace = StallTrace(lag)
    lag.start()
    trace.start()
    lag.expect_timer(TIMER_SECONDS)
    await asyncio.sleep(TIMER_SECONDS)
    lag.timer_fired()
    hold_the_loop()
    lag.expect_timer(TIMER_SECONDS)
    trace.stop()
    lag.stop()
    assert lag.max_seconds >= 0.15
    assert any("hold_the_loop" in stack for stack in trace.stacks)


async def test_the_trace_names_what_holds_the_loop() -> None:
    lag = LoopLag(REAL)
    trace = StallTrace(lag)
    start(lag)
    trace.start()
    await asyncio.sleep(0.1)
    hold_the_loop()
    await asyncio.sleep(0.1)
    trace.stop()
    lag.stop()
    assert any("hold_the_loop" in stack for stack in trace.stacks)


def test_a_scrape_tells_the_lag(broker: Broker) -> None:
    def scraped() -> dict[str, float]:
        text = broker.call("GET", "/metrics").body.decode()
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if "loop_lag" in line]
        return {name: float(value) for name, value in lines if name[0] != "#"}

    await_that(lambda: scraped()["delaylog_loop_lag_seconds_count"] >= 5)
    found = scraped()
    last = found['delaylog_loop_lag_seconds_bucket{le="+Inf"}']
    assert last == found["delaylog_loop_lag_seconds_count"]
    assert found['delaylog_loop_lag_seconds_bucket{le="0.001"}'] <= last
    assert found["delaylog_loop_lag_max_seconds"] > 0


# ----------- The host's part of the timeline: starts that replay, stalls of the loop, slow commits


KEY, PLACE = ("default", "t", "default"), (1, 1)


def node(started_ms: int, now_ms: int) -> Any:
    """What `watch_causes` uses of a node."""
    timeline = Timeline(started_ms)
    timeline.begin_asking(KEY, PLACE, 0, started_ms)
    return SimpleNamespace(
        engine=SimpleNamespace(state=SimpleNamespace(timeline=timeline), started_ms=started_ms),
        clock=SimpleNamespace(now_ms=lambda: now_ms),
        loop_lag=SimpleNamespace(),
        log_commits=SimpleNamespace(),
    )


def spans(node: Any) -> list[Span]:
    return node.engine.state.timeline.spans(KEY, PLACE, 0, 9_999)


def test_a_start_that_replays() -> None:
    """From the time that the engine read until it serves; again when it begins to lead."""
    one = node(1_000, 4_000)
    watch_causes(one)
    assert spans(one) == [Span(1_000, 4_000, "catching_up")]
    one.engine.started_ms, one.clock.now_ms = 6_000, lambda: 6_500
    note_started(one)
    assert spans(one)[1:] == [Span(6_000, 6_500, "catching_up")]


def test_what_only_the_host_sees() -> None:
    one = node(4_000, 4_000)
    watch_causes(one)
    one.clock.now_ms = lambda: 7_000
    one.loop_lag.on_stall(0.4)
    one.log_commits.on_slow(1.25)
    assert spans(one) == [Span(6_600, 7_000, "stall"), Span(5_750, 7_000, "slow_disk")]


# ----------------------------------------- Real hand-outs of an engine by minutes of its own clock


class Watched:
    """A host whose minutes are counted from the beginning of one."""

    def __init__(self, folder: Path) -> None:
        self.host = Host(folder)
        self.recent = RecentLateness()
        self.host.advance(-self.host.now_ms % MINUTE_MS)
        self.first = self.host.now_ms // MINUTE_MS
        self.look()

    def look(self) -> None:
        self.recent.look(self.host.now_ms, self.host.engine.state.series)

    def hand_out(self, late_ms: int) -> None:
        """A message of its own, this late, and a look."""
        self.host.send(1, delay=0)
        self.host.advance(late_ms)
        self.host.ack(self.host.receive())
        self.look()

    def until_minute(self, minute: int) -> None:
        """Advance to the start of a minute, counted from the first one."""
        self.host.advance((self.first + minute) * MINUTE_MS - self.host.now_ms)
        self.look()

    def found(self) -> dict[int, list[int]]:
        """By minute, the bounds below which there were messages."""
        out = {}
        for each in self.recent.minutes(self.host.now_ms):
            from_ms, counts = each["from_ms"], each["counts"]
            assert isinstance(from_ms, int)
            assert isinstance(counts, list)
            assert len(counts) == len(BOUNDS_MS) + 1
            bounds = [bound for bound, n in zip(BOUNDS_MS, counts, strict=False) for _ in range(n)]
            out[from_ms // MINUTE_MS - self.first] = bounds
        return out


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.host.close()


def test_a_minute_is_shown_when_it_has_ended(watched: Watched) -> None:
    watched.hand_out(8)
    watched.hand_out(40)
    assert watched.found() == {}
    watched.until_minute(1)
    assert watched.found() == {0: [10, 50]}
    watched.hand_out(200)
    watched.until_minute(3)
    assert watched.found() == {0: [10, 50], 1: [250]}


def test_old_minutes_are_forgotten(watched: Watched) -> None:
    for minute in range(RECENT + 10):
        watched.until_minute(minute)
    assert list(watched.found()) == list(range(9, RECENT + 9))
    watched.until_minute(RECENT + 50)
    assert min(watched.found()) == 50


def test_another_engine_counts_from_zero(watched: Watched) -> None:
    """Purpose: no negative counts, and none twice. Method: an engine that has counted less."""
    for _ in range(3):
        watched.hand_out(8)
    watched.until_minute(1)
    watched.host.restart(pause_ms=10)
    watched.look()
    watched.hand_out(40)
    watched.until_minute(2)
    assert watched.found() == {0: [10, 10, 10], 1: [50]}


def test_a_clock_that_was_set_back(watched: Watched) -> None:
    """Minutes to come are not shown, and replaced when they have ended again."""
    for minute in range(1, 4):
        watched.hand_out(8)
        watched.until_minute(minute)
    series, now_ms = watched.host.engine.state.series, watched.host.now_ms
    watched.recent.look(now_ms - 2 * MINUTE_MS, series)
    assert len(watched.recent.minutes(now_ms - 2 * MINUTE_MS)) == 1
    watched.recent.look(now_ms - MINUTE_MS, series)
    assert watched.found() == {0: [10], 1: []}


async def test_a_node_looks_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lateness, "MINUTE_MS", 200)
    async with running(tmp_path) as it:
        await it.until(lambda: len(it.node.recent_lateness.minutes(it.clock.now_ms())) > 1)
