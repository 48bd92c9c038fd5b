"""What the pumps of a node share: the attempts in flight, and the pace of targets that fail.

A failed attempt costs the broker about a millisecond: a connection, a lease, a nack. A thousand
targets that begin to hang together also time out together. So attempts at targets that fail, and
the ends of failed attempts, take turns at a fixed pace, and what is left of the loop's time goes
to targets that work.

At most `most` attempts are in flight. A pump that waits for messages holds no slot: thousands of
idle targets would use them all up. It takes slots when messages arrive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Final, TypeAlias

from delaylog.broker.push.outcomes import Verdict

TURN_SECONDS: Final = 0.010
"""The pace of targets that fail: 100 turns a second. A quarter of it changed no p99."""
FIRST_SECONDS: Final = 0.003
"""The pace of targets of which nothing is known, as after a start: 333 turns a second."""
WAIT_SECONDS_MAX: Final = 20.0
"""The longest wait for a turn, well below the time by which a lease outlasts its attempt."""
IDLE_MAX: Final = 256
"""Idle tasks that wait for the next attempts, a few KiB each."""
_Work: TypeAlias = Coroutine[None, None, None]


class Share:
    """The attempts in flight of all pumps, which share the process's connections."""

    def __init__(self, most: int) -> None:
        self.most, self.in_flight = most, 0
        self.ended: dict[Verdict, int] = dict.fromkeys(Verdict, 0)
        self.running: set[asyncio.Task[None]] = set()
        """Tasks with an attempt or a settle that has not ended."""
        self._idle: list[tuple[asyncio.Task[None], asyncio.Future[_Work | None]]] = []
        """Tasks that wait for work: a new task for each attempt costs more than its signature."""
        self._closed = False
        self.failing, self.unknown = Turns(TURN_SECONDS), Turns(FIRST_SECONDS)
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Pumps that wait for a slot."""

    def room(self, in_flight: int) -> int:
        """How many attempts may begin at a target that has `in_flight`.

        No target gets more than what it leaves to the others. So one target uses half of all
        attempts, n greedy ones leave the part 1/(n + 1), and a new one can always begin (dynamic
        thresholds: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998).
        """
        left = self.most - self.in_flight
        return max((left - in_flight) // 2, int(left > in_flight == 0))

    @property
    def is_full(self) -> bool:
        """Whether no further attempt may begin before one ends."""
        return self.in_flight >= self.most

    def take(self, count: int) -> None:
        """Count attempts that begin; `room` has permitted them in this turn of the loop."""
        self.in_flight += count
        assert self.in_flight <= self.most, "`room` permits no more"

    async def slot(self) -> None:
        """Take a slot for one attempt, first come, first served; `free` returns it."""
        if not self.is_full:
            self.take(1)
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():
                self.free()
            raise

    def free(self) -> None:
        """Return the slot of an attempt that ended or was not made; the longest wait gets it."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
        self.in_flight -= 1

    def run(self, work: _Work) -> None:
        """Run it on the loop, in a task that may have done other work before."""
        if self._idle:
            task, future = self._idle.pop()
            future.set_result(work)
        else:
            task = asyncio.get_running_loop().create_task(self._do(work))
        self.running.add(task)

    def close(self) -> None:
        """Keep no idle tasks any more."""
        self._closed = True
        while self._idle:
            self._idle.pop()[1].set_result(None)

    async def _do(self, work: _Work | None) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "the loop runs this as a task"
        while work is not None:
            try:
                await work
            finally:
                self.running.discard(task)
            if self._closed or len(self._idle) >= IDLE_MAX:
                return
            future: asyncio.Future[_Work | None] = loop.create_future()
            self._idle.append((task, future))
            try:
                work = await future
            except asyncio.CancelledError:
                self.running.discard(task)
                if future.done() and not future.cancelled() and (lost := future.result()):
                    lost.close()
                raise


class Turns:
    """Turns at one pace, in the order of calls."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._next_s, self._lock = seconds, 0.0, asyncio.Lock()

    async def next(self) -> None:
        """Wait for a turn. A loop that was late does not make up for turns: overdue ones would come
        together. Waits of more than half of `WAIT_SECONDS_MAX` raise the pace: none is longer.
        """
        loop = asyncio.get_running_loop()
        called_s = loop.time()
        async with self._lock:
            wait_s = self._next_s - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            waited = (loop.time() - called_s) / WAIT_SECONDS_MAX
            self._next_s = loop.time() + self._seconds * min(max(2 - 2 * waited, 0), 1)
