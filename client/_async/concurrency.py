"""Tasks, locks and waiting for asyncio; written by hand.

`_sync/concurrency.py` defines the same names for threads, so that code which uses them is written
once, in `_async`.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

from delaylog.client.workers import contexts

T = TypeVar("T")

Event = asyncio.Event
Semaphore = asyncio.Semaphore
Task = asyncio.Task
Cancelled = asyncio.CancelledError
"""Raised in a task that is cancelled."""

INTERRUPTS: Final = (KeyboardInterrupt, Cancelled)
"""Exceptions that interrupt a block although nothing in it failed."""

sleep = asyncio.sleep
in_own_context = contexts.in_own_context
limited = asyncio.timeout
"""A block that raises TimeoutError after so many seconds."""


class Lock:
    """Does nothing: in one event loop no other task runs until the holder awaits."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


RLock = Lock


class Condition:
    """What tasks wait for; the one that has waited longest is woken first."""

    def __init__(self, _lock: Lock) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait until `notify` reaches this task, or for `timeout_s`."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiters[waiter] = None
        timer = None if timeout_s is None else loop.call_later(timeout_s, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)
            if timer is not None:
                timer.cancel()

    async def wait_for(self, is_true: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is true, at most `timeout_s`. Returns whether it is."""
        until_s = time.monotonic() + timeout_s
        while not is_true() and (left_s := until_s - time.monotonic()) > 0:
            await self.wait(left_s)
        return is_true()

    def notify(self, count: int = 1) -> None:
        """Wake up to `count` tasks."""
        waiters = self._waiters
        while count > 0 and waiters:
            waiter = next(iter(waiters))
            del waiters[waiter]
            count -= _wake(waiter)

    def notify_all(self) -> None:
        """Wake all tasks."""
        self.notify(len(self._waiters))


def _wake(waiter: asyncio.Future[None]) -> bool:
    """Wake a waiter. Returns False if it is cancelled, or was woken before."""
    if waiter.done():
        return False
    waiter.set_result(None)
    return True


class Background:
    """Runs calls in the background; `wait` waits for them."""

    def __init__(self) -> None:
        self.tasks: set[Task[None]] = set()

    def begin(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a call."""
        task = asyncio.create_task(call())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def wait(self) -> None:
        """Wait until all calls have ended; their exceptions are dropped."""
        while self.tasks:
            await asyncio.gather(*self.tasks, return_exceptions=True)


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


async def wait_event(event: Event, timeout_s: float) -> bool:
    """Wait until an event is set, at most `timeout_s`. Returns whether it is."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    return event.is_set()


async def cancel(tasks: Collection[Task[T]], timeout_s: float | None = None) -> int:
    """Cancel tasks, and wait until they have ended. Returns how many have not."""
    for task in tasks:
        task.cancel()
    if not tasks:
        return 0
    _, deaf = await asyncio.wait(tasks, timeout=timeout_s)
    return len(deaf)


async def result_of(said: Any) -> Any:
    """What a function has returned that may be a coroutine function."""
    return await said if inspect.isawaitable(said) else said


async def together(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run calls concurrently and wait for all of them."""
    await asyncio.gather(*(call() for call in calls))


def from_any_thread(call: Callable[[], object]) -> Callable[[], object]:
    """Wrap a call so that any thread may make it."""
    loop = asyncio.get_running_loop()
    return lambda: loop.call_soon_threadsafe(call)
