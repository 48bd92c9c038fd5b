"""The machine of a simulated process: its clocks, its random bytes, and workers that take time.

A worker's job runs whole, at one moment that is drawn: a kill may fall between its request and
that moment, and calls go on meanwhile. The job of a log has two such moments, its write and its
sync. Each reading of the steady clock takes a little time, so that slices of work end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeVar

from delaylog.broker.host.machine import LogWorker
from delaylog.storage.log.physical_log import PhysicalLog
from tests.simulation.loop import SimLoop

T = TypeVar("T")
BASE_S = 1_767_225_600.0 + 40 * 60
"""The wall clock when a run begins: twenty minutes before an hour of the year 2026 begins."""


@dataclass
class Clocks:
    """What a machine's clocks show beside the loop's time; both survive a restart of the broker."""

    step_s: float = 0.0
    """How far the wall clock is off."""
    drift: float = 0.0
    """How much faster it runs."""


@dataclass(frozen=True)
class Speed:
    """How long things take, in seconds."""

    reading_s: float = 0.00002
    job_s: float = 0.001
    """The longest ordinary job."""
    slow_s: float = 0.0
    """The longest slow job."""
    slow_share: float = 0.0


class SimMachine:
    """A `Machine`."""

    def __init__(self, loop: SimLoop, clocks: Clocks, speed: Speed, seed: str) -> None:
        self._loop, self._clocks, self.speed = loop, clocks, speed
        self._random = Random(seed)
        self._busy_s = 0.0
        self._in_worker = False

    def steady_s(self) -> float:
        """The loop's time; to read it takes some."""
        self._loop.now += self.speed.reading_s
        self._busy_s += self.speed.reading_s
        return self._loop.now

    def wall_s(self) -> float:
        """The wall clock."""
        now = self._loop.now
        return BASE_S + now * (1 + self._clocks.drift) + self._clocks.step_s

    def boot_ms(self) -> int:
        """Milliseconds of the loop's time."""
        return int(self._loop.now * 1000)

    def processor_s(self) -> float:
        """The time that readings of the clock took."""
        return self._busy_s

    process_s = processor_s

    def random_bytes(self, count: int) -> bytes:
        """Of the seed."""
        return self._random.randbytes(count)

    def random(self) -> Random:
        """Of the seed."""
        return Random(self._random.getrandbits(64))

    def sleep(self, seconds: float) -> None:
        """Nobody else runs meanwhile."""
        self._loop.now += seconds

    def took(self) -> float:
        """How long the next job takes."""
        speed = self.speed
        slow = self._random.random() < speed.slow_share
        return self._random.random() * (speed.slow_s if slow else speed.job_s)

    def at_operation(self, kind: str) -> None:
        """A sync takes its time: of the loop, unless a worker waits for it."""
        if kind == "sync" and not self._in_worker:
            self._loop.now += self.took()

    def work(self, call: Callable[[], T]) -> T:
        """Run a worker's job, whose time has passed."""
        self._in_worker = True
        try:
            return call()
        finally:
            self._in_worker = False

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run the call later."""
        await asyncio.sleep(self.took())
        return self.work(call)

    def worker(self, name: str) -> Executor:
        """One job after the other."""
        return _Worker(self._loop, self)

    def log_worker(
        self, log: PhysicalLog, done: Callable[[BaseException | None], None]
    ) -> LogWorker:
        """A write, then a sync."""
        return _LogWorker(self._loop, self, log, done)


class _Worker(Executor):
    def __init__(self, loop: SimLoop, machine: SimMachine) -> None:
        self._loop, self._machine = loop, machine
        self._free_s = 0.0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run it after the earlier ones."""
        future: Future[T] = Future()
        self._free_s = max(self._free_s, self._loop.now) + self._machine.took()
        self._loop.call_at(self._free_s, self._do, future, fn, args, kwargs)
        return future

    def _do(self, future: Future[Any], call: Callable[..., Any], args: Any, kwargs: Any) -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(self._machine.work(partial(call, *args, **kwargs)))
            except BaseException as error:
                future.set_exception(error)


class _LogWorker:
    def __init__(
        self,
        loop: SimLoop,
        machine: SimMachine,
        log: PhysicalLog,
        done: Callable[[BaseException | None], None],
    ) -> None:
        self._loop, self._machine, self._log, self._done = loop, machine, log, done
        self._timer: asyncio.TimerHandle | None = None
        self._steps: list[Callable[[], object]] = []
        """What is left of the running job."""

    def start(self) -> None:
        """Nothing to start."""

    def kick(self) -> None:
        """Begin a job."""
        self._steps = [self._log.write_pending, self._log.sync]
        self._later()

    def _later(self) -> None:
        self._timer = self._loop.call_later(self._machine.took(), self._step)

    def _step(self) -> None:
        self._timer = None
        error: BaseException | None = None
        try:
            self._machine.work(self._steps.pop(0))
        except BaseException as failure:
            error = failure
        if error is None and self._steps:
            self._later()
            return
        self._steps = []
        self._done(error)

    def stop(self) -> None:
        """End the running job now: the caller waits for it."""
        while self._timer is not None:
            self._timer.cancel()
            self._step()
