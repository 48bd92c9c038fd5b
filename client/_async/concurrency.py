"""What tasks do differently from threads, by the names that both sides have; here tasks.

The one rule: `_sync/concurrency.py` offers the same names, so that what uses them is written once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")

Event = asyncio.Event
Task = asyncio.Task
Cancelled = asyncio.CancelledError
"""How a caller is told to end."""

INTERRUPTS: Final = (KeyboardInterrupt, Cancelled)
"""What ends a block before its time without being an error of it."""

sleep = asyncio.sleep


class Lock:
    """Nothing to do: in one loop nobody else runs where nothing is awaited."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class Aside:
    """Calls that nobody waits for, but `wait`."""

    def __init__(self) -> None:
        self._tasks: set[Task[None]] = set()

    def begin(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have it done."""
        task = asyncio.create_task(call())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Until all of them are done, by whatever end."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


def spawn(call: Callable[[], Coroutine[Any, Any, T]], name: str) -> Task[T]:
    """Begin a call beside the caller."""
    return asyncio.create_task(call(), name=name)


async def wait_first(tasks: Collection[Task[T]], timeout_s: float) -> None:
    """Until one of them is done, or for so long."""
    await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


async def wait_all(tasks: Collection[Task[T]], timeout_s: float) -> None:
    """Until all of them are done, or for so long."""
    if tasks:
        await asyncio.wait(tasks, timeout=timeout_s)


async def cancel(tasks: Collection[Task[T]]) -> None:
    """End them, as far as that can be."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def together(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Make calls at once, and wait for all."""
    await asyncio.gather(*(call() for call in calls))


def from_any_thread(call: Callable[[], object]) -> Callable[[], object]:
    """The call, for a thread that is not the caller's."""
    loop = asyncio.get_running_loop()
    return lambda: loop.call_soon_threadsafe(call)
