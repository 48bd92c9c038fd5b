"""Handlers run in contexts of their own, and nothing else about awaiting them changes."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from delaylog.client.workers.contexts import begin, in_own_context

NAME: ContextVar[str] = ContextVar("name", default="nobody")


async def by_steps(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """As runners do it; without what it returns."""
    rest = begin(function, *arguments)
    if rest is not None:
        await rest


@pytest.mark.parametrize("awaited", [in_own_context, by_steps])
@pytest.mark.parametrize("pauses", [0, 1, 3])
async def test_what_is_set_inside_stays_inside(awaited: Any, pauses: int) -> None:
    """Also for what it starts itself; what was set outside is seen."""
    seen: list[str] = []

    async def look() -> None:
        seen.append(NAME.get())

    async def handler(name: str) -> None:
        seen.append(NAME.get())
        NAME.set(name)
        for _ in range(pauses):
            await asyncio.sleep(0)
            seen.append(NAME.get())
        await asyncio.create_task(look())

    NAME.set("outside")
    for name in ("one", "two"):
        await awaited(handler, name)
        assert NAME.get() == "outside"
    assert seen == [
        "outside", *["one"] * (pauses + 1), "outside", *["two"] * (pauses + 1)
    ]  # fmt: skip


async def test_a_result_and_an_error_come_through() -> None:
    async def double(number: int, pauses: int) -> int:
        for _ in range(pauses):
            await asyncio.sleep(0)
        if number < 0:
            raise LookupError(number)
        return 2 * number

    for pauses in (0, 2):
        assert await in_own_context(double, 4, pauses) == 8
        for awaited in (in_own_context, by_steps):
            with pytest.raises(LookupError):
                await awaited(double, -1, pauses)


@pytest.mark.parametrize("awaited", [in_own_context, by_steps])
async def test_a_cancellation_reaches_it_and_may_be_caught(awaited: Any) -> None:
    caught: list[str] = []

    async def handler() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            caught.append(NAME.get())
            await asyncio.sleep(0)
            raise

    NAME.set("canceller")
    task = asyncio.create_task(awaited(handler))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert caught == ["canceller"]


async def test_timeouts_and_what_is_no_coroutine_work_inside() -> None:
    """A handler may be a plain function around one, that returns something to await."""

    async def slow() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    def returns_a_future() -> asyncio.Future[int]:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, 7)
        return future

    with pytest.raises(TimeoutError):
        await by_steps(slow)
    assert await in_own_context(returns_a_future) == 7


@pytest.mark.parametrize("awaited", [in_own_context, by_steps])
async def test_one_that_is_thrown_away_is_closed(awaited: Any) -> None:
    ended: list[str] = []

    async def handler() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.append("closed")

    coroutine = awaited(handler)
    coroutine.send(None)
    coroutine.close()
    assert ended == ["closed"]


@pytest.mark.parametrize("awaited", [in_own_context, by_steps])
def test_a_failure_that_came_to_it_keeps_nothing(awaited: Any) -> None:
    """What a failed handler had is given back at once, not when somebody collects garbage."""

    class Body:
        """Something large."""

    async def handler(body: Body) -> None:
        answer: asyncio.Future[None] | None = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(answer.set_exception, LookupError("no answer"))
        try:
            await answer
        finally:
            # This frame is no better than others.
            answer = None

    async def run() -> None:
        body = Body()
        seen = weakref.ref(body)
        with suppress(LookupError):
            await awaited(handler, body)
        del body
        await asyncio.sleep(0)
        assert seen() is None

    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()
