"""Tasks, locks and waiting for threads.

The one rule: `_async/concurrency.py` has the same names for asyncio, so code that uses them is
written once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Final, TypeVar

T = TypeVar("T")

Event = threading.Event
Lock = threading.Lock
Task = Future
"""A call in its own daemon thread; it cannot be cancelled."""


class Cancelled(BaseException):
    """Never raised: threads cannot be cancelled."""


INTERRUPTS: Final = (KeyboardInterrupt,)
"""Exceptions by which a block is left early, though nothing in it failed."""

sleep = time.sleep


class Aside:
    """Calls that run at once, in the caller: a thread for each would cost more."""

    def begin(self, call: Callable[[], None]) -> None:
        """Make a call."""
        call()

    def wait(self) -> None:
        """Return at once: no call is left."""


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


def cancel(tasks: Collection[Task[T]]) -> None:
    """Do nothing: the calls go on until they end by themselves."""


def together(calls: Iterable[Callable[[], None]]) -> None:
    """Run calls concurrently and wait for all of them."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def from_any_thread(call: Callable[[], object]) -> Callable[[], object]:
    """The call itself: any thread may use it."""
    return call
