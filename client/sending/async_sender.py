"""AsyncSender: sends of an asyncio program to one shard, gathered while a request is under way.

A lane has a task as long as anything waits in it, and both go when nothing does. The one rule:
`put` never waits and never talks to the network; whatever is put in one turn of the loop, or while
a request is out, goes as one request after it.

Back pressure: a task that awaits each of its sends has one message waiting at a time. A program
that does not await them asks for `room()` between sends: it waits at the outbox's limits, and lets
the loop turn now and then. One that does neither gets OutboxFull at twice the limits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from delaylog.client.bulk import SendAnswer
from delaylog.client.errors import ClientError
from delaylog.client.sending.batch import Batch
from delaylog.client.sending.lane import Lane
from delaylog.client.sending.lane_set import LaneSet
from delaylog.client.sending.outbox import Outbox
from delaylog.client.sending.row import Row
from delaylog.client.sending.sending import AsyncSending

_log = logging.getLogger("delaylog.client")

ROOM_CALLS_A_TURN: Final = 256
"""Calls of `room()` after which the loop turns, so that answers are read meanwhile."""


class AsyncPost(Protocol):
    """One repeatable exchange with a shard: a bulk send body there, its answer back."""

    async def __call__(self, topic: str, wire: bytes) -> SendAnswer:
        """NotReached: nothing was done; AnswerLost: nobody knows; ApiError: refused."""


class AsyncSender:
    """One shard's lanes. It belongs to the loop that it is first used in."""

    def __init__(
        self,
        post: AsyncPost,
        outbox: Outbox,
        *,
        shard: str = "",
        spare: Callable[[set[str]], AsyncSender | None] = lambda tried: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`spare` names a sender to take what any shard may have, given those tried in vain."""
        self.shard = shard
        self._post = post
        self._outbox = outbox
        self._linger_s = outbox.limits.linger_ms / 1000
        self._clock = clock
        self._tasks: dict[Lane, asyncio.Task[None]] = {}
        self._lingering: dict[Lane, asyncio.Future[None]] = {}
        self._room_calls = 0
        self._closed = False

        def spare_lanes(tried: set[str]) -> LaneSet | None:
            other = spare(tried)
            return None if other is None else other._lanes

        self._lanes = LaneSet(
            outbox,
            clock,
            shard=shard,
            on_work=self._work,
            on_progress=self._wake,
            spare=spare_lanes,
        )

    @property
    def reachable(self) -> bool:
        """False for a while after a connection was refused."""
        return self._lanes.reachable

    def put(self, topic: str, row: Row, *, free: bool = False) -> AsyncSending:
        """Queue a message; `free`: another shard may take it. OutboxFull, and it is not queued."""
        if self._closed:
            raise ClientError("the client is closed")
        return AsyncSending(*self._lanes.add(topic, row, free=free))

    async def room(self) -> None:
        """Wait until another message may be queued; usually at once."""
        self._room_calls += 1
        if self._room_calls % ROOM_CALLS_A_TURN == 0:
            await asyncio.sleep(0)
        outbox = self._outbox
        while outbox.crowded:
            await _woken(outbox.room_waiters)

    async def flush(self) -> None:
        """Wait until all that is queued now has been sent or given up; raises nothing of it."""
        for batch in self._lanes.close_open():
            while batch.left:
                await _woken(batch.waiters)

    async def abandon(self, error: BaseException) -> None:
        """Give up whatever still waits, and end."""
        self._closed = True
        tasks = list(self._tasks.items())
        for lane, task in tasks:
            task.cancel()
            self._lanes.give_up(lane, error, in_flight=True)
        for _, task in tasks:
            await asyncio.wait([task])

    def _work(self, lane: Lane) -> None:
        if lane not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._drive(lane))
            self._tasks[lane] = task
            task.add_done_callback(lambda task: self._never_began(lane, task))
            return
        waiter = self._lingering.get(lane)
        if waiter is not None and lane.linger_from_s is None:
            _settle(waiter)

    async def _drive(self, lane: Lane) -> None:
        try:
            while not lane.idle:
                if self._linger_s:
                    await self._linger(lane)
                pause_s = await self._exchange(lane)
                # Even without a pause: who was woken by the answer sends again before the next
                # request is cut.
                await asyncio.sleep(pause_s)
        except asyncio.CancelledError:
            self._lanes.give_up(lane, _cancelled(), in_flight=True)
            raise
        except BaseException as error:
            # A fault of ours must not leave anybody waiting for ever.
            _log.exception("sends to %s are given up", lane.topic)
            self._lanes.give_up(lane, error, in_flight=True)
        finally:
            del self._tasks[lane]
            self._lanes.drop(lane)

    def _never_began(self, lane: Lane, task: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first turn runs nothing of its own."""
        if self._tasks.get(lane) is task:
            self._lanes.give_up(lane, _cancelled(), in_flight=False)
            del self._tasks[lane]
            self._lanes.drop(lane)

    async def _exchange(self, lane: Lane) -> float:
        """One request and what came of it; how long to pause."""
        attempt = lane.attempt()
        assert attempt is not None, "a lane that is not idle has something to send"
        try:
            answer = await self._post(lane.topic, attempt.wire)
        except Exception as error:
            return self._lanes.failed(lane, attempt, error)
        return self._lanes.answered(lane, attempt, answer)

    async def _linger(self, lane: Lane) -> None:
        began_s = lane.linger_from_s
        left_s = 0.0 if began_s is None else began_s + self._linger_s - self._clock()
        if left_s <= 0:
            return
        loop = asyncio.get_running_loop()
        waiter = self._lingering[lane] = loop.create_future()
        timer = loop.call_later(left_s, _settle, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            del self._lingering[lane]

    def _wake(self, batch: Batch) -> None:
        _wake_all(batch.waiters)
        if self._outbox.room_waiters and not self._outbox.crowded:
            _wake_all(self._outbox.room_waiters)


def _cancelled() -> ClientError:
    return ClientError("the loop ended before the message was sent")


async def _woken(waiters: dict[Any, None]) -> None:
    """Until whoever keeps these waiters wakes them."""
    waiter = asyncio.get_running_loop().create_future()
    waiters[waiter] = None
    try:
        await waiter
    finally:
        waiters.pop(waiter, None)


def _wake_all(waiters: dict[Any, None]) -> None:
    for waiter in waiters:
        _settle(waiter)
    waiters.clear()


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
