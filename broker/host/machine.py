"""What a node takes from the machine it runs on: clocks, threads and random bytes.

`Machine` is the seam. A test or a simulation passes one whose time it moves itself and whose
workers run inline; `RealMachine` is the implementation in the product. An import contract keeps
`time`, `threading` and the like out of `calls`, `cluster`, `host`, `resp` and `web`, apart from
this module and the modules that observe the process itself. `InlineMachine` is for a clock that a
program moves. Files have a seam of their own: `storage.files.FileSystem`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from random import Random
from typing import Any, Final, Protocol, TypeVar

from delaylog.storage.log.physical_log import LogThread, PhysicalLog

T = TypeVar("T")


class LogWorker(Protocol):
    """Writes and syncs a log, one job at a time."""

    def start(self) -> None:
        """Start to accept jobs."""

    def kick(self) -> None:
        """Request one job: write and sync the log."""

    def stop(self) -> None:
        """End after the running job."""


class Machine(Protocol):
    """Clocks, threads and random bytes of one machine."""

    def steady_s(self) -> float:
        """Seconds of a clock that never steps; its zero is arbitrary."""

    def wall_s(self) -> float:
        """Seconds since the epoch, by a clock that may step."""

    def boot_ms(self) -> int:
        """Milliseconds since the machine started: never steps, and runs while the process is
        stopped or the machine sleeps.
        """

    def processor_s(self) -> float:
        """Processor seconds of the calling thread."""

    def process_s(self) -> float:
        """Processor seconds of the whole process."""

    def random_bytes(self, count: int) -> bytes:
        """Cryptographically secure random bytes."""

    def random(self) -> Random:
        """A new generator of pseudo-random numbers, for jitter and tie breaks."""

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a blocking call on a thread, so that the loop goes on."""

    def worker(self, name: str) -> Executor:
        """A thread that runs calls one at a time."""

    def log_worker(
        self, log: PhysicalLog, done: Callable[[BaseException | None], None]
    ) -> LogWorker:
        """The worker of a log; `done` is called after each job, with its error."""


class RealMachine:
    """The machine of this process."""

    steady_s = staticmethod(time.perf_counter)
    wall_s = staticmethod(time.time)
    processor_s = staticmethod(time.thread_time)
    process_s = staticmethod(time.process_time)
    random_bytes = staticmethod(secrets.token_bytes)
    random = staticmethod(Random)
    sleep = staticmethod(time.sleep)

    def boot_ms(self) -> int:
        """Milliseconds of CLOCK_BOOTTIME."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a blocking call on a thread of the loop's pool."""
        return await asyncio.to_thread(call)

    def worker(self, name: str) -> Executor:
        """A thread with this name that runs calls one at a time."""
        return ThreadPoolExecutor(1, thread_name_prefix=name)

    def log_worker(
        self, log: PhysicalLog, done: Callable[[BaseException | None], None]
    ) -> LogWorker:
        """The log thread."""
        return LogThread(log, done)


REAL: Final[Machine] = RealMachine()


class InlineMachine(RealMachine):
    """A machine whose workers run at once, on the calling thread: nothing goes on by itself."""

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run the call."""
        return call()

    def worker(self, name: str) -> Executor:  # noqa: ARG002 (the form of a machine)
        """A worker without a thread."""
        return _Inline()

    def log_worker(
        self, log: PhysicalLog, done: Callable[[BaseException | None], None]
    ) -> LogWorker:
        """A worker that has written and synced the log when `kick` returns."""
        return _InlineLog(log, done)


class _Inline(Executor):
    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run it."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class _InlineLog:
    def __init__(self, log: PhysicalLog, done: Callable[[BaseException | None], None]) -> None:
        self._log, self._done = log, done

    def start(self) -> None:
        """Nothing to start."""

    def kick(self) -> None:
        """Write and sync the log."""
        error: BaseException | None = None
        try:
            self._log.write_pending()
            self._log.sync()
        except Exception as failure:
            error = failure
        self._done(error)

    def stop(self) -> None:
        """Nothing to stop."""
