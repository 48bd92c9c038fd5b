"""Long polls' queue: first come first served, and no wake-up is lost with its consumer."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import pytest

from delaylog.broker.engine.errors import EngineError, NotLeadingError, UnknownError
from delaylog.broker.host.waiters import OpenStreams, StopsError, Waiters

KEY = ("default", "t")


@pytest.fixture
def waiters() -> Waiters:
    return Waiters()


async def wait(waiters: Waiters, key: Any, seconds: float) -> bool:
    """Wait to be woken, as a call without messages does."""
    place = waiters.join(key)
    try:
        return await place.wait(seconds)
    finally:
        place.leave()


async def poll(waiters: Waiters, count: int) -> list[asyncio.Task[bool]]:
    """So many waiters, waiting."""
    tasks = [asyncio.ensure_future(wait(waiters, KEY, 15)) for _ in range(count)]
    await asyncio.sleep(0)
    assert len(waiters) == count
    return tasks


async def test_first_come_first_served(waiters: Waiters) -> None:
    """Each wake goes to the one that has waited longest."""
    tasks = await poll(waiters, 3)
    for number, task in enumerate(tasks):
        waiters.wake(KEY)
        assert await task is True
        assert [other.done() for other in tasks[number + 1 :]] == [False] * (2 - number)
    assert len(waiters) == 0


async def test_waking_nobody(waiters: Waiters) -> None:
    """A wake without a waiter, or of another topic, is nothing."""
    waiters.wake(KEY)
    (task,) = await poll(waiters, 1)
    waiters.wake(("default", "other"))
    waiters.wake(("other", "t"))
    await asyncio.sleep(0)
    assert not task.done()
    waiters.wake(KEY)
    assert await task


@pytest.mark.parametrize("seconds", [0, -1, 0.01])
async def test_time_is_up(waiters: Waiters, seconds: float) -> None:
    """False when the time is over, at once if there was none, and the place is given up."""
    assert await wait(waiters, KEY, seconds) is False
    assert len(waiters) == 0


async def test_cancelled_before_the_wake(waiters: Waiters) -> None:
    """Who went away is not woken: the wake goes to the next."""
    first, second = await poll(waiters, 2)
    first.cancel()
    await asyncio.wait([first])
    waiters.wake(KEY)
    assert await second is True
    assert first.cancelled()


async def test_cancelled_after_the_wake(waiters: Waiters) -> None:
    """Who went away when already woken hands the wake on."""
    first, second = await poll(waiters, 2)
    waiters.wake(KEY)
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    assert await second is True


async def test_cancelled_in_the_turn_of_the_wake(waiters: Waiters) -> None:
    """The same the other way round: gone first, woken in the same turn of the loop."""
    first, second = await poll(waiters, 2)
    first.cancel()
    waiters.wake(KEY)
    await asyncio.wait([first])
    assert await second is True


async def test_everyone_of_a_group_is_woken(waiters: Waiters) -> None:
    """All lines of it, and no other group's."""
    mine, other = ("default", "t", "a"), ("default", "t", "b")
    keys = [(mine, None), (mine, None), (mine, "filter"), (other, None)]
    tasks = [asyncio.ensure_future(wait(waiters, key, 15)) for key in keys]
    await asyncio.sleep(0)
    assert sorted(waiters.groups()) == [mine, other]
    waiters.wake_everyone(mine)
    await asyncio.sleep(0)
    assert [task.done() for task in tasks] == [True, True, True, False]
    assert waiters.groups() == [other]
    waiters.wake_everyone(mine)
    waiters.wake_everyone(other)
    assert await asyncio.gather(*tasks) == [True] * 4


async def test_close_lets_all_go(waiters: Waiters) -> None:
    """Closing answers every waiter False, those to come too."""
    tasks = await poll(waiters, 3)
    waiters.close()
    assert await asyncio.gather(*tasks) == [False] * 3
    assert await wait(waiters, KEY, 15) is False
    assert len(waiters) == 0


async def test_each_wake_goes_to_one_of_a_thousand(waiters: Waiters) -> None:
    """Nobody wakes for nothing, and the others keep their turn."""
    tasks = await poll(waiters, 1_000)
    for count in range(1, 11):
        waiters.wake(KEY)
        for _ in range(3):
            await asyncio.sleep(0)
        assert [task.done() for task in tasks] == [True] * count + [False] * (1_000 - count)
    waiters.close()
    await asyncio.gather(*tasks)


async def test_long_polls_that_vanish_leave_nothing_behind(waiters: Waiters) -> None:
    """Lines, timers and futures go, at a cost that does not grow with the others in line."""

    async def vanish(waiters: Waiters, count: int) -> float:
        tasks = await poll(waiters, count)
        # Other processes do not count, nor does a look through all that earlier tests have left.
        gc.disable()
        begun = time.thread_time()
        try:
            for task in reversed(tasks):
                task.cancel()
            await asyncio.wait(tasks)
            return time.thread_time() - begun
        finally:
            gc.enable()

    def futures() -> int:
        gc.collect()
        return sum(isinstance(x, asyncio.Future) for x in gc.get_objects())

    before = futures()
    few = min([await vanish(waiters, 500) for _ in range(3)])
    many = min([await vanish(waiters, 10_000) for _ in range(3)])
    assert len(waiters) == 0
    assert waiters.groups() == []
    assert futures() < before + 10
    assert many < 100 * few, "20 times as many cost 400 times as much if each searches the line"


# ---------------------------------------------- The registry of open streams: who is ended by what


A, B = ("default", "a", "default"), ("default", "b", "default")


class Stream:
    def __init__(self) -> None:
        self.whys: list[EngineError] = []

    def end(self, why: EngineError) -> None:
        self.whys.append(why)


def test_streams_end_by_group_or_all() -> None:
    streams, a, b = OpenStreams(), Stream(), Stream()
    streams.add(A, a)
    streams.add(B, b)
    assert len(streams) == 2
    gone = UnknownError("gone")
    streams.end(A, gone)
    assert (a.whys, b.whys) == ([gone], [])
    streams.remove(A, a)
    assert len(streams) == 1
    streams.end_all(gone)
    assert (a.whys, b.whys) == ([gone], [gone])


async def test_events_of_the_node_end_them() -> None:
    waiters, a, b = Waiters(), Stream(), Stream()
    waiters.streams.add(A, a)
    waiters.streams.add(B, b)
    waiters.drop(A)
    (why,) = a.whys
    assert (why.code, b.whys) == ("unknown", [])
    lost = NotLeadingError("lost")
    waiters.end_leading(lost)
    assert b.whys == [lost]
    waiters.close()
    assert isinstance(b.whys[-1], StopsError)
