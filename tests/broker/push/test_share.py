"""Turns of a node's failing targets: their pace, and that nobody overtakes."""

from __future__ import annotations

import asyncio

from delaylog.broker.push.share import TURN_SECONDS, Share


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


async def test_the_first_turn_after_a_pause_waits_for_nothing() -> None:
    share, loop = Share(10), asyncio.get_running_loop()
    for _ in range(3):
        began = loop.time()
        await share.turn()
        assert loop.time() - began < TURN_SECONDS
        await asyncio.sleep(2 * TURN_SECONDS)


async def test_work_is_known_until_it_ends() -> None:
    share, go_on = Share(10), asyncio.Event()

    async def work() -> None:
        await go_on.wait()

    share.run(work())
    assert len(share.running) == 1
    go_on.set()
    await asyncio.gather(*share.running)
    await asyncio.sleep(0)
    assert not share.running
