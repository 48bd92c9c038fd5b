"""The loop's lag: a stall shows in the histogram, and its code in the trace."""

from __future__ import annotations

import asyncio
import time

from delaylog.broker.host.machine import REAL
from delaylog.broker.host.watch.lateness import BOUNDS, LoopLag, StallTrace
from tests.broker.conftest import Broker
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
