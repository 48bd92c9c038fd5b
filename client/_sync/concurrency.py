"""Tasks, locks and waiting for threads.

`_async/concurrency.py` defines the same names for asyncio, so that code which uses them is written
once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from typing import Any, Final, TypeVar

T = TypeVar("T")

Condition = threading.Condition
Event = threading.Event
Lock = threading.Lock
RLock = threading.RLock
Semaphore = threading.Semaphore
Task = Future
"""A call in its own daemon thread. It cannot be cancelled."""


class Cancelled(BaseException):
    """Never raised: threads cannot be cancelled."""


INTERRUPTS: Final = (KeyboardInterrupt,)
"""Exceptions that interrupt a block although nothing in it failed."""

sleep = time.sleep


class Background:
    """Runs calls immediately in the caller: a thread per call would cost more."""

    tasks: Collection[Task[None]] = ()

    def begin(self, call: Callable[[], None]) -> None:
        """Make a call."""
        call()

    def wait(self) -> None:
        """Return immediately: no call is in progress."""


def spawn(call: Callable[[], T], name: str) -> Task[T]:
    """Start a call in a thread."""
    task: Task[T] = Future()
    task.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            task.set_exception(error)
        else:
            task.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return task


def wait_first(tasks: Collection[Task[T]], timeout_s: float) -> None:
    """Wait until one task is done, at most `timeout_s`."""
    wait(tasks, timeout=timeout_s, return_when=FIRST_COMPLETED)


def wait_all(tasks: Collection[Task[T]], timeout_s: float) -> None:
    """Wait until all tasks are done, at most `timeout_s`."""
    wait(tasks, timeout=timeout_s)


def wait_event(event: Event, timeout_s: float) -> bool:
    """Wait until an event is set, at most `timeout_s`. Returns whether it is."""
    return event.wait(timeout_s)


def cancel(tasks: Collection[Task[T]], timeout_s: float | None = None) -> int:  # noqa: ARG001
    """Do nothing: threads run until they end by themselves."""
    return 0


def limited(timeout_s: float) -> AbstractContextManager[None]:  # noqa: ARG001
    """A block without a limit of its own: calls of threads end by that of the client."""
    return nullcontext()


def result_of(said: Any) -> Any:
    """What a function has returned."""
    return said


def in_own_context(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a copy of the current context."""
    return copy_context().run(function, *arguments)


def together(calls: Iterable[Callable[[], None]]) -> None:
    """Run calls concurrently and wait for all of them."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def from_any_thread(call: Callable[[], object]) -> Callable[[], object]:
    """The call itself: any thread may make it."""
    return call
