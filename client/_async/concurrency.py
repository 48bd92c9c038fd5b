"""Tasks, locks and waiting for asyncio; written by hand.

`_sync/concurrency.py` defines the same names for threads, so that code which uses them is written
once, in `_async`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")

Event = asyncio.Event
Task = asyncio.Task
Cancelled = asyncio.CancelledError
"""Raised in a task that is cancelled."""

INTERRUPTS: Final = (KeyboardInterrupt, Cancelled)
"""Exceptions that interrupt a block although nothing in it failed."""

sleep = asyncio.sleep


class Lock:
    """Does nothing: in one event loop no other task runs until the holder awaits."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class Background:
    """Runs calls in the background; `wait` waits for them."""

    def __init__(self) -> None:
        self._tasks: set[Task[None]] = set()

    def begin(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a call."""
        task = asyncio.create_task(call())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until all calls have ended; their exceptions are dropped."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


def spawn(call: Callable[[], Coroutine[Any, Any, T]], name: str) -> Task[T]:
    """Start a call as a task."""
    return asyncio.create_task(call(), name=name)


async def wait_first(tasks: Collection[Task[T]], timeout_s: float) -> None:
    """Wait until one task is done, at most `timeout_s`."""
    await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


async def wait_all(tasks: Collection[Task[T]], timeout_s: float) -> None:
    """Wait until all tasks are done, at most `timeout_s`."""
    if tasks:
        await asyncio.wait(tasks, timeout=timeout_s)


async def cancel(tasks: Collection[Task[T]]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def together(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run calls concurrently and wait for all of them."""
    await asyncio.gather(*(call() for call in calls))


def from_any_thread(call: Callable[[], object]) -> Callable[[], object]:
    """Wrap a call so that any thread may make it."""
    loop = asyncio.get_running_loop()
    return lambda: loop.call_soon_threadsafe(call)
