"""A receive that gives up while nothing may be handed out: whoever waits behind it is woken."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.long_poll import long_poll
from delaylog.broker.engine.late.timeline import Timeline
from delaylog.broker.host.waiters import Waiters

TOPIC = ("default", "t")
KEY = ((*TOPIC, "default"), None)


def closed(waiters: Waiters, gate: asyncio.Future[bool]) -> Any:
    """A node whose gate does not open before the future says what becomes of it."""

    async def until_may_deliver(seconds: float) -> bool:
        return await gate

    return SimpleNamespace(
        engine=SimpleNamespace(state=SimpleNamespace(topics={}, timeline=Timeline(0))),
        waiters=waiters,
        role=SimpleNamespace(until_may_deliver=until_may_deliver),
        clock=SimpleNamespace(now_ms=lambda: 0),
        time_s=asyncio.get_running_loop().time,
    )


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_woke_it_wakes_the_next_one(cancelled: bool) -> None:
    waiters = Waiters()
    gate: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    node = closed(waiters, gate)
    call = asyncio.create_task(long_poll(node, TOPIC, ReceiveCall(1, wait_ms=9_000)))
    behind = asyncio.create_task(waiters.join(KEY).wait(60))
    await asyncio.sleep(0)
    if cancelled:
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    else:
        gate.set_result(False)
        assert await call is None
    async with asyncio.timeout(30):
        assert await behind
