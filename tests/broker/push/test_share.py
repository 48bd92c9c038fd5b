"""Turns of a node's failing targets: their pace, and that nobody overtakes."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.push.pump import (
    IDLE_MAX,
    LEASE_SLACK_MS,
    TURN_SECONDS,
    WAIT_SECONDS_MAX,
    Share,
    Turns,
)
from tests.waiting import until


async def test_turns_come_in_order_at_a_pace() -> None:
    share, loop = Share(10), asyncio.get_running_loop()
    ended: list[tuple[int, float]] = []
    began = loop.time()

    async def one(number: int) -> None:
        await share.failing.next()
        ended.append((number, loop.time() - began))

    await asyncio.gather(*(one(number) for number in range(20)))
    assert [number for number, _ in ended] == list(range(20))
    for number, after_s in ended:
        # A timer of the loop may fire by its resolution early.
        assert after_s >= number * TURN_SECONDS - 0.002


async def test_turns_of_one_pace_do_not_wait_for_those_of_another() -> None:
    share = Share(10)
    waiting = [asyncio.create_task(share.failing.next()) for _ in range(20)]
    await asyncio.sleep(0)
    await share.unknown.next()
    assert sum(task.done() for task in waiting) < 10
    for task in waiting:
        task.cancel()


@given(st.integers(4, 100), st.integers(1, 40))
def test_greedy_targets_leave_attempts_to_others(each: int, targets: int) -> None:
    """All attempts of a target end, and it takes all that it may: soon all leave as much."""
    share, in_flight = Share(each * (targets + 1)), [0] * targets
    for number in [*range(targets)] * 100:
        share.in_flight -= in_flight[number]
        in_flight[number] = share.room(0)
        share.in_flight += in_flight[number]
    # Whole attempts: the parts are not quite equal.
    assert share.most - share.in_flight >= each // 2
    assert max(in_flight) <= 2 * each


def test_the_last_attempts_are_for_targets_that_have_none() -> None:
    share = Share(2)
    share.in_flight = 1
    assert (share.room(1), share.room(0)) == (0, 1)


async def test_a_loop_that_was_blocked_does_not_make_up_for_turns() -> None:
    share, loop = Share(10), asyncio.get_running_loop()
    ended: list[float] = []

    async def one() -> None:
        await share.failing.next()
        ended.append(loop.time())

    tasks = [asyncio.create_task(one()) for _ in range(8)]
    await asyncio.sleep(0)
    loop.call_soon(time.sleep, 5 * TURN_SECONDS)
    await asyncio.gather(*tasks)
    gaps = [second - first for first, second in pairwise(ended[1:])]
    assert min(gaps) >= TURN_SECONDS - 0.002


async def test_the_first_turn_after_a_pause_waits_for_nothing() -> None:
    share, loop = Share(10), asyncio.get_running_loop()
    for _ in range(3):
        began = loop.time()
        await share.failing.next()
        assert loop.time() - began < TURN_SECONDS
        await asyncio.sleep(2 * TURN_SECONDS)


async def test_no_wait_for_a_turn_is_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand turns of 10 ms would take 10 s; the limit is 0.2 s here."""
    monkeypatch.setattr("delaylog.broker.push.pump.WAIT_SECONDS_MAX", 0.2)
    turns, loop = Turns(TURN_SECONDS), asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(turns.next() for _ in range(1_000)))
    # What is overdue comes at once, as fast as the machine is.
    assert 0.15 < loop.time() - began < 5
    assert WAIT_SECONDS_MAX * 1_000 < LEASE_SLACK_MS


async def test_slots_go_to_the_longest_wait() -> None:
    share = Share(2)
    share.take(2)
    got: list[int] = []

    async def one(number: int) -> None:
        await share.slot()
        got.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.sleep(0)
    assert (share.room(0), got) == (0, [])
    for _ in range(2):
        share.free()
        # A slot that was handed over is in use: nobody overtakes.
        assert share.is_full
        await asyncio.sleep(0)
    assert got == [0, 2]
    share.free()
    # It has a slot and is cancelled before it learns that.
    tasks[3].cancel()
    await until(lambda: share.in_flight == 1)
    assert got == [0, 2]
    share.free()
    await share.slot()
    assert share.in_flight == 1


async def test_idle_tasks_are_few_and_end_with_their_share() -> None:
    share, go_on = Share(10), asyncio.Event()

    async def work() -> None:
        await go_on.wait()

    others = len(asyncio.all_tasks())
    for _ in range(IDLE_MAX + 5):
        share.run(work())
    go_on.set()
    await until(lambda: len(asyncio.all_tasks()) == others + IDLE_MAX)
    share.close()
    share.run(work())
    await until(lambda: len(asyncio.all_tasks()) == others)


async def test_work_that_is_cancelled_before_it_begins_is_not_known_any_more() -> None:
    share = Share(10)
    begun: list[bool] = []

    async def work() -> None:
        begun.append(True)

    share.run(work())
    await until(lambda: begun and not share.running)
    share.run(work())
    for task in share.running:
        task.cancel()
    await until(lambda: not share.running)
    assert len(begun) == 1
