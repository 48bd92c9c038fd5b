"""Turns of a node's failing targets: their pace, and that nobody overtakes."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.push.share import FIRST_SECONDS, IDLE_MAX, TURN_SECONDS, Share


async def test_turns_come_in_order_at_a_pace() -> None:
    share, loop = Share(10), asyncio.get_running_loop()
    ended: list[tuple[int, float]] = []
    began = loop.time()

    async def one(number: int) -> None:
        await share.turn()
        ended.append((number, loop.time() - began))

    await asyncio.gather(*(one(number) for number in range(20)))
    assert [number for number, _ in ended] == list(range(20))
    for number, after_s in ended:
        # A timer of the loop may fire by its resolution early.
        assert after_s >= number * TURN_SECONDS - 0.002


async def test_turns_of_one_pace_do_not_wait_for_those_of_another() -> None:
    share, loop = Share(10), asyncio.get_running_loop()
    waiting = [asyncio.create_task(share.turn()) for _ in range(20)]
    await asyncio.sleep(0)
    began = loop.time()
    await share.turn(FIRST_SECONDS)
    assert loop.time() - began < 10 * TURN_SECONDS
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
        await share.turn()
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
        await share.turn()
        assert loop.time() - began < TURN_SECONDS
        await asyncio.sleep(2 * TURN_SECONDS)


async def test_work_is_known_until_it_ends_and_its_task_is_used_again() -> None:
    share = Share(10)
    tasks: list[asyncio.Task[None]] = []

    async def work(go_on: asyncio.Event) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        await go_on.wait()

    for _ in range(3):
        go_on = asyncio.Event()
        share.run(work(go_on))
        assert len(share.running) == 1
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not share.running
    assert len({*tasks}) == 1
    share.close()
    await asyncio.gather(*tasks)


async def test_idle_tasks_are_few_and_end_with_their_share() -> None:
    share, go_on = Share(10), asyncio.Event()

    async def work() -> None:
        await go_on.wait()

    others = len(asyncio.all_tasks())
    for _ in range(IDLE_MAX + 5):
        share.run(work())
    go_on.set()
    await asyncio.sleep(0.01)
    assert len(asyncio.all_tasks()) == others + IDLE_MAX
    share.close()
    share.run(work())
    await asyncio.sleep(0.01)
    assert len(asyncio.all_tasks()) == others


async def test_work_that_is_cancelled_before_it_begins_is_not_known_any_more() -> None:
    share = Share(10)
    begun: list[bool] = []

    async def work() -> None:
        begun.append(True)

    share.run(work())
    await asyncio.sleep(0.01)
    share.run(work())
    for task in share.running:
        task.cancel()
    await asyncio.sleep(0.01)
    assert (len(begun), len(share.running)) == (1, 0)
