"""What a node takes from the machine it runs on: clocks, threads and random bytes.

`Machine` is the seam. A test or a simulation hands in one whose time it moves itself and whose
workers run inline, and the whole node runs in one thread. `RealMachine` is the only implementation
in the product, and this module the only one around it that imports `time`, `threading` and the
like (an import contract holds that). Files have a seam of their own: `storage.files.FileSystem`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

from delaylog.storage.log.log_thread import LogThread
from delaylog.storage.log.physical_log import PhysicalLog

T = TypeVar("T")


class LogWorker(Protocol):
    """Writes and syncs a log, one job at a time."""

    def start(self) -> None:
        """Begin to take jobs."""

    def kick(self) -> None:
        """Ask for one job."""

    def stop(self) -> None:
        """End after the job that runs."""


class Machine(Protocol):
    """Clocks, threads and random bytes of one machine."""

    def steady_s(self) -> float:
        """Seconds of a clock that never steps; its zero means nothing."""

    def wall_s(self) -> float:
        """Seconds since the epoch, by a clock that may step."""

    def processor_s(self) -> float:
        """Processor seconds of the calling thread."""

    def process_s(self) -> float:
        """Processor seconds of the whole process."""

    def random_bytes(self, count: int) -> bytes:
        """Bytes that nobody can guess."""

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a call that blocks, while the loop goes on."""

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

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a call that blocks in a thread of the loop's pool."""
        return await asyncio.to_thread(call)

    def worker(self, name: str) -> Executor:
        """A thread of this name that runs calls one at a time."""
        return ThreadPoolExecutor(1, thread_name_prefix=name)

    def log_worker(
        self, log: PhysicalLog, done: Callable[[BaseException | None], None]
    ) -> LogWorker:
        """The log thread."""
        return LogThread(log, done)


REAL: Final[Machine] = RealMachine()
