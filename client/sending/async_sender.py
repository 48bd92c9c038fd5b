"""AsyncSender: gathers the sends of an asyncio program to one shard.

A lane and its task exist while messages wait in the lane. `put` never blocks and does no I/O.
Messages that are put in one turn of the loop, or while a request is in progress, are sent together
in the next request.

Backpressure: `send` waits at the limits of the outbox. A program that queues messages by
`send_soon` must await `room()` between them: `room` blocks at the limits too, and yields to the
loop from time to time. A program that does not gets OutboxFull at twice the limits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import weakref
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from itertools import islice
from threading import get_ident
from typing import Any, Final, TypeAlias

from delaylog.client.errors import ClientClosed, ClientError
from delaylog.client.handlers import HANDLED, noted
from delaylog.client.models import Sent
from delaylog.client.sending.batch import WHOLE_BATCH, Batch, Row
from delaylog.client.sending.lane import Lane
from delaylog.client.sending.lane_sender import LaneSender
from delaylog.client.sending.outbox import Outbox
from delaylog.client.sending.queued import Sending
from delaylog.client.wire.bulk import SendAnswer
from delaylog.client.wire.exchange import OnRepeat

_log = logging.getLogger("delaylog.client")

OTHER_LOOP: Final = "this client belongs to the event loop that used it first: make one in each"
ROOM_CALLS_A_TURN: Final = 256
"""After this many calls `room()` yields to the loop, so that answers are read."""


AsyncPost: TypeAlias = Callable[[str, bytes, OnRepeat, float | None], Awaitable[SendAnswer]]
"""An idempotent exchange with a shard: takes a topic and a bulk body and returns the answer.

It raises NotReached (not sent), AnswerLost (unknown) or ApiError (refused), and calls OnRepeat with
each failure after which the exchange was retried internally. The number says how many seconds all
that may take; None: as long as any call.
"""


class AsyncSending(Sending):
    """The handle of an asyncio send. Any number of tasks may await it and be cancelled."""

    __slots__ = ()

    def result(self) -> Sent:
        """The Sent, or the error raised, without waiting. InvalidStateError while pending."""
        self._outcome()
        return self._ended()

    def __await__(self) -> Generator[Any, None, Sent]:
        if self._batch.is_settled(self._row):
            return self._at_once()
        # One future per waiter, since a cancelled task cancels the future that it awaits. Its
        # own C iterator is used, since a Python one would make a wait half as expensive again.
        waiter: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
        self._batch.waiters[waiter] = self._row
        return self._noted(waiter).__await__() if HANDLED.get() else waiter.__await__()

    async def _noted(self, waiter: asyncio.Future[Sent]) -> Sent:
        return noted(self._batch.topic, await waiter)

    def _at_once(self) -> Generator[Any, None, Sent]:
        return self._ended()
        yield


class AsyncSender(LaneSender):
    """The lanes of one shard. It is bound to the event loop of its first use."""

    def __init__(
        self,
        post: AsyncPost,
        outbox: Outbox,
        *,
        shard: str = "",
        spare: Callable[[set[str]], AsyncSender | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`spare` returns another sender for messages without a home; it gets the tried shards."""
        self._post = post
        self._room_calls = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(outbox, shard=shard, spare=spare, clock=clock)
        _senders.add(self)

    def _begin(self) -> None:
        self._thread_id = 0
        """The thread that ran the loop last; 0 in a forked child, where the loop does not run."""
        self._tasks: dict[Lane, asyncio.Task[None]] = {}
        self._lingering: dict[Lane, asyncio.Future[None]] = {}
        self._begin_lanes()

    def put(
        self, topic: str, row: Row, *, free: bool = False, limit_s: float | None = None
    ) -> AsyncSending:
        """Queue a message, or raise OutboxFull. `free`: it may go to another shard.

        `limit_s`: how long its caller waits; None if no caller does.
        """
        if self._closed:
            raise ClientClosed
        loop = self._loop
        if loop is None or not loop.is_running() or get_ident() != self._thread_id:
            self._check_loop()
        batch, number = self._add(topic, row, free=free, limit_s=limit_s)
        return AsyncSending(batch, number)

    def begin(self, topic: str, row: Row, *, free: bool, limit_s: float) -> asyncio.Future[Sent]:
        """Queue a message for a caller that waits, or raise OutboxFull. Cheaper than a sending."""
        if self._closed:
            raise ClientClosed
        loop = self._loop
        if loop is None or not loop.is_running() or get_ident() != self._thread_id:
            loop = self._check_loop()
        batch, number = self._add(topic, row, free=free, limit_s=limit_s)
        waiter: asyncio.Future[Sent] = loop.create_future()
        batch.waiters[waiter] = number
        return waiter

    async def room(self) -> None:
        """Wait until another message may be queued."""
        self._room_calls += 1
        if self._room_calls % ROOM_CALLS_A_TURN == 0:
            await asyncio.sleep(0)
        outbox = self._outbox
        while outbox.crowded:
            await _woken(outbox.room_waiters, None)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all messages queued now are sent or have failed. Raises no failures.

        After TimeoutError sending continues.
        """
        if self._loop is not asyncio.get_running_loop():
            # The tasks of another loop send nothing while this one runs: `abandon` fails them.
            return
        async with asyncio.timeout(timeout_s):
            for batch in self._close_open():
                while batch.left:
                    await _woken(batch.waiters, WHOLE_BATCH)

    def refuse(self) -> None:
        """Refuse new messages. Queued messages are still sent."""
        self._closed = True

    async def abandon(self, error: Exception) -> None:
        """Fail all waiting messages with `error`, and end the tasks."""
        self._closed = True
        if self._loop is not asyncio.get_running_loop():
            for lane in self._all_lanes():
                for batch in lane.batches:
                    batch.waiters.clear()
                self._give_up_lane(lane, error, in_flight=True)
            self._begin()
            return
        tasks = list(self._tasks.items())
        for lane, task in tasks:
            task.cancel()
            self._give_up_lane(lane, error, in_flight=True)
        for _, task in tasks:
            await asyncio.wait([task])

    def _check_loop(self) -> asyncio.AbstractEventLoop:
        """The running loop. RuntimeError if another one used the sender first.

        The tasks of that one would send nothing. A send checks that its own loop runs in this
        thread before it calls this, since `get_running_loop` of Python 3.11 makes a system call.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError(OTHER_LOOP)
        self._thread_id = get_ident()
        return loop

    def _work(self, lane: Lane) -> None:
        if lane not in self._tasks:
            loop = self._check_loop()
            task = loop.create_task(self._drive(lane))
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
                    # One turn wakes the tasks that awaited the answer, and in the next one they
                    # send again, so that the next request includes their messages.
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._give_up_lane(lane, _cancelled(), in_flight=True)
            raise
        except GeneratorExit:
            # The loop is gone, and with it everyone who waits.
            raise
        except BaseException as error:
            # A bug here must not leave callers waiting forever.
            _log.exception("sends to %s are given up", lane.topic)
            failure = error if isinstance(error, Exception) else _cancelled()
            self._give_up_lane(lane, failure, in_flight=True)
            if failure is not error:
                raise
        finally:
            # After `abandon` in another loop the task is collected, and its lane is gone.
            if self._tasks.pop(lane, None) is not None:
                self._drop_lane(lane)

    def _never_began(self, lane: Lane, task: asyncio.Task[None]) -> None:
        """Handle a task that was cancelled before its first turn, so that it ran no code."""
        if self._tasks.get(lane) is task:
            self._give_up_lane(lane, _cancelled(), in_flight=False)
            del self._tasks[lane]
            self._drop_lane(lane)

    async def _exchange(self, lane: Lane) -> float:
        """Make one request and process its outcome. Returns how long to pause."""
        attempt = lane.attempt()
        assert attempt is not None, "a lane that is not idle has something to send"
        if self._expired(lane, attempt):
            return 0.0
        try:
            told = partial(self._outbox.retried, lane.topic, attempt.n)
            left_s = lane.left_s(self._clock())
            answer = await self._post(lane.topic, attempt.wire, told, left_s)
        except Exception as error:
            return self._failed(lane, attempt, error)
        return self._answered(lane, attempt, answer)

    async def _linger(self, lane: Lane) -> None:
        began_s = lane.linger_from_s
        left_s = 0.0 if began_s is None else began_s + lane.linger_s(self._linger_s) - self._clock()
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
        # In the next turn, so that a ready request is sent before thousands of tasks wake.
        asyncio.get_running_loop().call_soon(self._wake, batch)

    def _wake(self, batch: Batch) -> None:
        waiters, batch.waiters = batch.waiters, {}
        if batch.answered and waiters:
            sent = batch.all_sent()
            for waiter, row in waiters.items():
                # Done means that the waiter was cancelled. A waiter for the batch reads no result.
                if not waiter.done():
                    waiter.set_result(sent[row])
        else:
            _wake_some(batch, waiters)
        self._wake_for_room()

    def _wake_for_room(self) -> None:
        """Wake as many waiters as there is room for, and in the next turn those for what is left.

        All at once would be too many: a program may have a million sends that wait for room.
        """
        outbox = self._outbox
        waiters = outbox.room_waiters
        if not waiters or outbox.crowded:
            return
        for waiter in list(islice(waiters, outbox.limits.pending_max - outbox.rows)):
            del waiters[waiter]
            _settle(waiter)
        if waiters:
            asyncio.get_running_loop().call_soon(self._wake_for_room)


def _cancelled() -> ClientError:
    return ClientError("the loop ended before the message was sent")


async def _woken(waiters: dict[Any, Any], reason: object) -> None:
    """Register a waiter, and wait until it is woken."""
    waiter = asyncio.get_running_loop().create_future()
    waiters[waiter] = reason
    try:
        await waiter
    finally:
        waiters.pop(waiter, None)


def _wake_some(batch: Batch, waiters: dict[asyncio.Future[Any], int]) -> None:
    """Wake the waiters of settled rows in a batch that was answered in parts."""
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
    # Several tasks may raise this exception, each with its own traceback.
    waiter.set_exception(outcome.with_traceback(None))
    # Mark the exception as retrieved, in case the task is cancelled before it reads it.
    waiter.exception()


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_senders: weakref.WeakSet[AsyncSender] = weakref.WeakSet()


def _in_forked_child() -> None:
    """Forget all queued messages: the parent sends them."""
    for sender in list(_senders):
        sender._outbox.reset_after_fork()
        sender._begin()


os.register_at_fork(after_in_child=_in_forked_child)
