"""Timers: neither an error nor a reset inside the callback changes how often they run."""

from __future__ import annotations

import asyncio

from delaylog.replication.raftos_oracle.state import SteadyTimer


async def test_errors_and_resets() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: errors.append(what))
    calls: list[int] = []
    enough = asyncio.Event()

    def callback() -> None:
        calls.append(1)
        if len(calls) == 5:
            enough.set()
        timer.reset()
        if len(calls) == 2:
            raise ValueError

    waits: list[int] = []

    def interval_s() -> float:
        waits.append(1)
        return 0.001

    timer = SteadyTimer(interval_s, callback)
    timer.stop()  # before it was started
    timer.start()
    await asyncio.wait_for(enough.wait(), 10)
    timer.stop()
    count = len(calls)
    await asyncio.sleep(0.02)
    assert len(calls) == count
    assert len(waits) == 2 * count + 1, "set again once by itself and once by the reset"
    assert len(errors) == 1
