"""What threads do differently from tasks, by the names that both sides have; here threads.

The one rule: `_async/concurrency.py` offers the same names, so that what uses them is written once.
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
"""A call in a daemon thread of its own, which cannot be cancelled."""


class Cancelled(BaseException):
    """Never raised: nobody can tell a thread to end."""


INTERRUPTS: Final = (KeyboardInterrupt,)
"""What ends a block before its time without being an error of it."""

sleep = time.sleep


class Aside:
    """Calls that the caller makes itself: a thread for each would cost more."""

    def begin(self, call: Callable[[], None]) -> None:
        """Do it."""
        call()

    def wait(self) -> None:
        """All of them are done."""


def spawn(call: Callable[[], T], name: str) -> Task[T]:
    """Begin a call beside the caller."""
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
    """Until one of them is done, or for so long."""
    wait(tasks, timeout=timeout_s, return_when=FIRST_COMPLETED)


def wait_all(tasks: Collection[Task[T]], timeout_s: float) -> None:
    """Until all of them are done, or for so long."""
    wait(tasks, timeout=timeout_s)


def cancel(tasks: Collection[Task[T]]) -> None:
    """End them, as far as that can be: they end by themselves."""


def together(calls: Iterable[Callable[[], None]]) -> None:
    """Make calls at once, and wait for all."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def from_any_thread(call: Callable[[], object]) -> Callable[[], object]:
    """The call, for a thread that is not the caller's."""
    return call
