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
from functools import partial
from typing import Any, Final, Protocol

from delaylog.client.errors import ClientError
from delaylog.client.models import Sent
from delaylog.client.sending.batch import WHOLE_BATCH, Batch
from delaylog.client.sending.lane import Lane
from delaylog.client.sending.lane_set import LaneSet
from delaylog.client.sending.outbox import Outbox
from delaylog.client.sending.row import Row
from delaylog.client.sending.sending import AsyncSending
from delaylog.client.wire.bulk_answers import SendAnswer
from delaylog.client.wire.exchanging import OnRepeat

_log = logging.getLogger("delaylog.client")

ROOM_CALLS_A_TURN: Final = 256
"""Calls of `room()` after which the loop turns, so that answers are read meanwhile."""


class AsyncPost(Protocol):
    """One repeatable exchange with a shard: a bulk send body there, its answer back."""

    async def __call__(
        self, topic: str, wire: bytes, on_repeat: OnRepeat | None = None
    ) -> SendAnswer:
        """NotReached: nothing was done; AnswerLost: nobody knows; ApiError: refused.

        `on_repeat` hears of failures after which it asked again by itself.
        """


class AsyncSender:
    """One shard's lanes. It belongs to the loop that it is first used in."""

    def __init__(
        self,
        post: AsyncPost,
        outbox: Outbox,
        *,
        shard: str = "",
        spare: Callable[[set[str]], AsyncSender | None] | None = None,
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
            other = None if spare is None else spare(tried)
            return None if other is None else other._lanes

        self._lanes = LaneSet(
            outbox,
            clock,
            shard=shard,
            on_work=self._work,
            on_progress=self._progress,
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
        batch, number = self._lanes.add(topic, row, free=free)
        return AsyncSending(batch, number)

    async def room(self) -> None:
        """Wait until another message may be queued; usually at once."""
        self._room_calls += 1
        if self._room_calls % ROOM_CALLS_A_TURN == 0:
            await asyncio.sleep(0)
        outbox = self._outbox
        while outbox.crowded:
            await _woken(outbox.room_waiters, None)

    async def flush(self) -> None:
        """Wait until all that is queued now has been sent or given up; raises nothing of it."""
        for batch in self._lanes.close_open():
            while batch.left:
                await _woken(batch.waiters, WHOLE_BATCH)

    def refuse(self) -> None:
        """Take no more; what is queued goes on being sent."""
        self._closed = True

    async def abandon(self, error: Exception) -> None:
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
                if pause_s:
                    await asyncio.sleep(pause_s)
                elif not lane.complete:
                    # One turn to wake who waited for the answer, and one in which they send again,
                    # so that the next request has theirs.
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._lanes.give_up(lane, _cancelled(), in_flight=True)
            raise
        except BaseException as error:
            # A fault of ours must not leave anybody waiting for ever.
            _log.exception("sends to %s are given up", lane.topic)
            failure = error if isinstance(error, Exception) else _cancelled()
            self._lanes.give_up(lane, failure, in_flight=True)
            if failure is not error:
                raise
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
            told = partial(self._outbox.retried, lane.topic, attempt.n)
            answer = await self._post(lane.topic, attempt.wire, told)
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

    def _progress(self, batch: Batch) -> None:
        # In the next turn: a request that is ready goes out before thousands of tasks are woken.
        asyncio.get_running_loop().call_soon(self._wake, batch)

    def _wake(self, batch: Batch) -> None:
        waiters, batch.waiters = batch.waiters, {}
        if batch.answered and waiters:
            sent = batch.all_sent()
            for waiter, row in waiters.items():
                # Done = whoever waited was cancelled. Who waits for all reads no result.
                if not waiter.done():
                    waiter.set_result(sent[row])
        else:
            _wake_some(batch, waiters)
        room_waiters = self._outbox.room_waiters
        if room_waiters and not self._outbox.crowded:
            for waiter in room_waiters:
                _settle(waiter)
            room_waiters.clear()


def _cancelled() -> ClientError:
    return ClientError("the loop ended before the message was sent")


async def _woken(waiters: dict[Any, Any], reason: object) -> None:
    """Until whoever keeps these waiters wakes them."""
    waiter = asyncio.get_running_loop().create_future()
    waiters[waiter] = reason
    try:
        await waiter
    finally:
        waiters.pop(waiter, None)


def _wake_some(batch: Batch, waiters: dict[asyncio.Future[Any], int]) -> None:
    """Of a batch that had no single answer: wake those whose rows have ended."""
    for waiter, row in waiters.items():
        if waiter.done():
            continue
        if row == WHOLE_BATCH:
            waiter.set_result(None)
        elif batch.is_settled(row):
            _hand_over(waiter, batch.outcome(row))
        else:
            batch.waiters[waiter] = row


def _hand_over(waiter: asyncio.Future[Sent], outcome: Sent | BaseException) -> None:
    if isinstance(outcome, Sent):
        waiter.set_result(outcome)
        return
    # Several may raise it, each from its own place.
    waiter.set_exception(outcome.with_traceback(None))
    # Should the task be cancelled before it gets it: it counts as looked at all the same.
    waiter.exception()


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
