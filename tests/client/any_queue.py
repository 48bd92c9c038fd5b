"""One topic of a client or of an embedded broker, of either kind, with one set of calls."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any


async def got(value: Any) -> Any:
    """The answer of a call of either kind."""
    return await value if inspect.isawaitable(value) else value


async def listed(found: Any) -> list[Any]:
    """The items of a list of either kind."""
    return [each async for each in found] if hasattr(found, "__aiter__") else list(found)


@asynccontextmanager
async def entered(block: Any) -> AsyncIterator[Any]:
    """A `with` block of either kind, of a client, a broker or a message."""
    if hasattr(block, "__aenter__"):
        async with block as inside:
            yield inside
    else:
        with block as inside:
            yield inside


class Queue:
    """One topic of a client or broker of either kind."""

    def __init__(self, client: Any, topic: str) -> None:
        self.client, self.topic = client, topic

    async def call(self, name: str, *given: Any, **options: Any) -> Any:
        return await got(getattr(self.client, name)(self.topic, *given, **options))

    async def take(self, **asked: Any) -> Any:
        """Receive the next message, which is sent before."""
        await self.call("send", "x", id="a")
        (message,) = await self.call("receive", **asked)
        return message

    async def block(self, message: Any, act: Callable[[Any], Any] = lambda _: None) -> None:
        """Use the message in a `with` block that does `act`."""
        async with entered(message) as inside:
            assert inside is message
            await got(act(message))

    async def state(self) -> str:
        counts = (await self.call("stats")).counts
        (state,) = [name for name in counts.__slots__ if getattr(counts, name)]
        return str(state)


def on_a_queue(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Run a test with the queue that the fixture opens."""

    @functools.wraps(test)
    async def run(queue: Callable[[], AbstractAsyncContextManager[Queue]], **others: Any) -> None:
        async with queue() as opened:
            await test(opened, **others)

    return run


async def looped(
    queue: Queue, n: int, act: Callable[[Any], Any] = lambda _: None, **asked: Any
) -> list[Any]:
    """The first `n` messages of a subscription, each after `act`."""
    seen: list[Any] = []
    messages = queue.client.subscribe(queue.topic, **asked)
    if hasattr(messages, "__aiter__"):
        async for message in messages:
            await got(act(message))
            seen.append(message)
            if len(seen) == n:
                break
        return seen
    for message in messages:
        act(message)
        seen.append(message)
        if len(seen) == n:
            break
    return seen
