"""The loop of a simulation: virtual time, an order that repeats, processes that die or freeze."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.simulation.loop import Deadlock, Endless, Process, SimLoop


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    made = SimLoop(10_000)
    yield made
    made.close()


def test_time_passes_only_by_timers(loop: SimLoop) -> None:
    async def year() -> float:
        await asyncio.sleep(365 * 86_400)
        return asyncio.get_running_loop().time()

    assert loop.run_until_complete(year()) == 365 * 86_400


def test_timers_of_one_moment_fire_in_their_order(loop: SimLoop) -> None:
    fired: list[int] = []
    for number in range(100):
        loop.call_at(1.0, fired.append, number)

    loop.run_until_complete(asyncio.sleep(2))
    assert fired == [*range(100)]


def test_what_never_comes_is_a_deadlock(loop: SimLoop) -> None:
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())


def test_what_never_ends_is_noticed(loop: SimLoop) -> None:
    def spin() -> None:
        loop.call_soon(spin)

    loop.call_soon(spin)
    with pytest.raises(Endless):
        loop.run_until_complete(loop.create_future())


def test_a_dead_process_does_nothing_more(loop: SimLoop) -> None:
    done: list[str] = []
    process = Process("one")

    async def work() -> None:
        try:
            await asyncio.sleep(1)
            done.append("worked")
        finally:
            asyncio.get_running_loop().call_soon(done.append, "a call of the dead")

    async def main() -> None:
        loop.create_task(work(), context=process.context)
        await asyncio.sleep(0.5)
        process.die()
        await asyncio.sleep(1)
        process.bury()
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert done == []


def test_a_frozen_process_goes_on_later(loop: SimLoop) -> None:
    done: list[float] = []
    process = Process("one")

    async def work() -> None:
        await asyncio.sleep(1)
        done.append(loop.now)

    async def main() -> None:
        loop.create_task(work(), context=process.context)
        await asyncio.sleep(0.5)
        process.is_frozen = True
        await asyncio.sleep(5)
        assert not done
        loop.thaw(process)
        await asyncio.sleep(0.1)

    loop.run_until_complete(main())
    assert done == [5.5]
