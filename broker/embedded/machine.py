"""The machine of an embedded broker: its threads work until the process has ended.

The pools of `concurrent.futures` and of asyncio refuse work once the main thread has ended. The
other threads of a program and its `atexit` handlers still call the broker then, and close it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

from delaylog.broker.host.machine import Machine, RealMachine

T = TypeVar("T")
Job: TypeAlias = tuple[Future[Any], Callable[[], Any]]


class Worker(Executor):
    """One daemon thread. It is started at once: later the process may start no more threads."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._shut = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a call after the earlier ones. Raises RuntimeError after `shutdown`."""
        if self._shut:
            raise RuntimeError("this thread was shut down")
        future: Future[T] = Future()
        self._jobs.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """End the thread after the calls that were submitted."""
        self._shut = True
        self._jobs.put(None)
        if wait:
            self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            _do(*job)
            # What it refers to is freed now, and not with the next job.
            del job


def _do(future: Future[Any], call: Callable[[], Any]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)


async def in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call on a thread of its own. After a cancel a call that runs goes on."""
    worker = Worker("delaylog-call")
    try:
        return await asyncio.wrap_future(worker.submit(call))
    finally:
        worker.shutdown(wait=False)


class EmbeddedMachine(RealMachine):
    """The machine of this process, without pools."""

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a blocking call on a thread."""
        return await in_thread(call)

    def worker(self, name: str) -> Executor:
        """A thread with this name that runs calls one at a time."""
        return Worker(name)


EMBEDDED: Final[Machine] = EmbeddedMachine()
