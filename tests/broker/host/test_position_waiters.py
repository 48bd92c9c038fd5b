"""Who waits for a position is told once, in the order of positions: reached, or why not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from delaylog.broker.host.log_commits import Completion, PositionWaiters


class Leaving(Exception):
    """Why a wait ends."""


def notes(called: list[tuple[str, BaseException | None]]) -> Callable[[str], Completion]:
    """Callbacks that note a name and their argument."""
    return lambda name: lambda error: called.append((name, error))


def test_told_in_the_order_of_positions() -> None:
    called: list[tuple[str, BaseException | None]] = []
    waiters, note = PositionWaiters(), notes(called)
    for position, name in ((30, "c"), (10, "a"), (30, "d"), (20, "b"), (10, "a2")):
        waiters.add(position, note(name))
    waiters.reach(9)
    assert called == []
    waiters.reach(20)
    assert called == [("a", None), ("a2", None), ("b", None)]
    assert len(waiters) == 2
    waiters.reach(20)
    waiters.reach(100)
    assert [name for name, _ in called[3:]] == ["c", "d"]
    assert len(waiters) == 0


def test_all_fail_and_who_comes_later_waits() -> None:
    called: list[tuple[str, BaseException | None]] = []
    waiters, note, error = PositionWaiters(), notes(called), Leaving()

    def ask_again(_: BaseException | None) -> None:
        waiters.add(10, note("again"))

    waiters.add(10, ask_again)
    waiters.add(20, note("b"))
    waiters.fail_all(error)
    assert called == [("b", error)]
    assert len(waiters) == 1
    waiters.reach(10)
    assert called[1:] == [("again", None)]


async def test_futures_return_or_raise() -> None:
    waiters = PositionWaiters()
    waits = [asyncio.ensure_future(waiters.wait(position)) for position in (10, 20, 20, 30)]
    await asyncio.sleep(0)
    waiters.reach(10)
    await asyncio.wait_for(waits[0], 10)
    waits[1].cancel()
    await asyncio.wait(waits[1:2])
    waiters.fail_all(Leaving("elsewhere"))
    for each in waits[2:]:
        with pytest.raises(Leaving, match="elsewhere"):
            await asyncio.wait_for(each, 10)
    assert waits[1].cancelled()


async def test_who_went_away_is_passed_over() -> None:
    waiters = PositionWaiters()
    gone, stays = (asyncio.ensure_future(waiters.wait(10)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    waiters.reach(10)
    await asyncio.wait_for(stays, 10)
    assert gone.cancelled()


def test_who_waits_no_longer_is_not_told() -> None:
    called: list[tuple[str, BaseException | None]] = []
    waiters, note = PositionWaiters(), notes(called)
    leaving = note("leaving")
    waiters.add(10, note("a"))
    waiters.add(10, leaving)
    waiters.add(20, note("b"))
    waiters.remove(10, leaving)
    waiters.reach(20)
    assert [name for name, _ in called] == ["a", "b"]
