"""ThreadSender: a background thread that sends the messages of a program to one shard.

The thread starts with the first message and ends after an idle time. `put` blocks only while the
queue is full. A forked child starts with an empty queue: the parent sends the queued messages. At
interpreter exit, queued messages are sent for a few seconds; the number of the remaining ones is
logged.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias

from delaylog.client.errors import ClientClosed, ClientError
from delaylog.client.models import Sent
from delaylog.client.sending.batch import WHOLE_BATCH, Batch, Row
from delaylog.client.sending.lane import Attempt, Lane
from delaylog.client.sending.lane_sender import LaneSender
from delaylog.client.sending.outbox import Outbox
from delaylog.client.sending.queued import Sending
from delaylog.client.wire.bulk import SendAnswer
from delaylog.client.wire.exchange import OnRepeat
from delaylog.client.wire.times import duration_s

_log = logging.getLogger("delaylog.client")


IDLE_S: Final = 10.0
"""Idle time after which the thread ends; the next message starts another one."""
EXIT_FOR_S: Final = 5.0
"""How long queued messages are sent at exit without `close`. Most broker restarts take less, and
supervisors kill a program after about ten seconds."""
_here: Final = threading.local()
"""`outbox` = the one whose messages this thread settles: its hooks may queue more there, but must
not wait for room, which they would make."""


Post: TypeAlias = Callable[[str, bytes, OnRepeat, float | None], SendAnswer]
"""An idempotent exchange with a shard, as `AsyncPost` describes it."""


class ThreadSending(Sending):
    """The handle of a send of a program with threads. Any number of threads may wait."""

    __slots__ = ("_lock",)

    def __init__(self, batch: Batch, row: int, lock: threading.RLock) -> None:
        super().__init__(batch, row)
        self._lock = lock

    def result(self, timeout: timedelta | None = None) -> Sent:
        """Wait for the Sent, or raise the error. After TimeoutError sending continues."""
        timeout_s = duration_s("timeout", timeout, or_zero=True)
        batch = self._batch
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.done():
            waiter = threading.Event()
            with self._lock:
                # Under the lock of the sender: otherwise the wake-up could precede the wait.
                if self.done():
                    break
                batch.waiters[waiter] = self._row
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if not waiter.wait(left_s):
                with self._lock:
                    batch.waiters.pop(waiter, None)
                if not self.done():
                    raise TimeoutError(f"the message was not sent within {timeout_s} s")
        return self._ended()


class ThreadSender(LaneSender):
    """The lanes of one shard and their thread. All senders of an outbox share a lock."""

    def __init__(
        self,
        post: Post,
        outbox: Outbox,
        *,
        lock: threading.RLock,
        shard: str = "",
        spare: Callable[[set[str]], ThreadSender | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`spare` returns another sender for messages without a home; it gets the tried shards."""
        self._post = post
        self._lock = lock
        super().__init__(outbox, shard=shard, spare=spare, clock=clock)
        _senders.add(self)

    def put(
        self, topic: str, row: Row, *, free: bool = False, limit_s: float | None = None
    ) -> ThreadSending:
        """Queue a message once there is room. `free`: it may go to another shard.

        `limit_s`: how long its caller waits, which includes the wait for room; None if none does.
        RuntimeError if no thread can be started; then nothing is queued.
        """
        with self._lock:
            if self._outbox.crowded:
                makes_room = getattr(_here, "outbox", None) is self._outbox
                self._wait_for_room(0.0 if makes_room else limit_s)
            if self._closed:
                raise ClientClosed
            if self._thread is None:
                self._start()
            batch, number = self._add(topic, row, free=free, limit_s=limit_s)
        return ThreadSending(batch, number, self._lock)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all messages queued now are sent or have failed. Raises no failures.

        After TimeoutError sending continues.
        """
        deadline_s = None if timeout_s is None else self._clock() + timeout_s
        with self._lock:
            waiting = self._close_open()
        for batch in waiting:
            while batch.left:
                waiter = threading.Event()
                with self._lock:
                    if not batch.left:
                        break
                    batch.waiters[waiter] = WHOLE_BATCH
                left_s = None if deadline_s is None else deadline_s - self._clock()
                if not waiter.wait(left_s):
                    raise TimeoutError(f"messages are not sent after {timeout_s} s")

    def refuse(self) -> None:
        """Refuse new messages, also of callers that wait for room. Queued ones are still sent."""
        with self._lock:
            self._closed = True
            _wake_all(self._outbox.room_waiters)

    def abandon(self, error: Exception) -> None:
        """Fail all waiting messages, and end the thread after its current request."""
        with self._lock:
            self._closed = True
            before, _here.outbox = getattr(_here, "outbox", None), self._outbox
            try:
                for lane in self._all_lanes():
                    self._give_up(lane, error)
            finally:
                _here.outbox = before
            self._woken.notify_all()
            _wake_all(self._outbox.room_waiters)

    def _begin(self) -> None:
        self._woken = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._paused_until_s: dict[Lane, float] = {}
        self._under_way: Lane | None = None
        self._begin_lanes()

    def _reset_after_fork(self, lock: threading.RLock) -> list[Lane]:
        """Reset in a forked child; returns the lanes, whose messages the parent sends."""
        lanes = self._all_lanes()
        self._lock = lock
        self._begin()
        return lanes

    def _wait_for_room(self, limit_s: float | None) -> None:
        ends_s = None if limit_s is None else self._clock() + limit_s
        while self._outbox.crowded and not self._closed:
            left_s = None if ends_s is None else ends_s - self._clock()
            if left_s is not None and left_s <= 0:
                assert limit_s is not None
                raise self._outbox.no_room(limit_s)
            waiter = threading.Event()
            self._outbox.room_waiters[waiter] = None
            self._lock.release()
            try:
                waiter.wait(left_s)
            finally:
                self._lock.acquire()
                self._outbox.room_waiters.pop(waiter, None)

    def _work(self, lane: Lane) -> None:
        if lane not in self._paused_until_s:
            self._paused_until_s[lane] = float("-inf")
        self._woken.notify_all()

    def _start(self) -> None:
        """Start the thread, before anything waits for it."""
        name = f"delaylog-send-{self.shard or 'broker'}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        thread.start()
        self._thread = thread

    def _can_send(self) -> bool:
        try:
            if self._thread is None:
                self._start()
        except RuntimeError as error:
            _log.warning("no thread to send to %s: %s", self.shard, error)
            return False
        return True

    def _run(self) -> None:
        _here.outbox = self._outbox
        woken = self._woken
        while True:
            with woken:
                lane = self._next_lane()
                while lane is None:
                    if self._paused_until_s:
                        woken.wait(self._wait_s())
                    elif self._closed or not woken.wait(IDLE_S):
                        # This also ends the thread of a client that was dropped without close.
                        if not self._paused_until_s:
                            self._thread = None
                            return
                    lane = self._next_lane()
                attempt = lane.attempt()
                assert attempt is not None, "a lane that is not idle has something to send"
                if self._expired(lane, attempt):
                    if lane.idle:
                        self._drop(lane)
                    continue
                left_s = lane.left_s(self._clock())
                self._under_way = lane
            outcome = self._exchange(attempt, left_s)
            with woken:
                self._under_way = None
                self._judge(lane, attempt, outcome)

    def _exchange(self, attempt: Attempt, limit_s: float | None) -> SendAnswer | Exception:
        try:
            # Encode without the lock: a batch in an attempt accepts no more rows.
            topic = attempt.batch.topic
            told = partial(self._outbox.retried, topic, attempt.n)
            return self._post(topic, attempt.wire, told, limit_s)
        except Exception as error:
            return error

    def _judge(self, lane: Lane, attempt: Attempt, outcome: SendAnswer | Exception) -> None:
        if lane not in self._paused_until_s:
            return  # It was abandoned meanwhile.
        if isinstance(outcome, SendAnswer):
            pause_s = self._answered(lane, attempt, outcome)
        else:
            pause_s = self._failed(lane, attempt, outcome)
        if lane.idle:
            self._drop(lane)
            return
        # Move the lane to the end, behind those that waited for this request.
        del self._paused_until_s[lane]
        self._paused_until_s[lane] = self._clock() + pause_s if pause_s else float("-inf")

    def _next_lane(self) -> Lane | None:
        """The ready lane that has waited longest."""
        now_s = self._clock()
        for lane in self._paused_until_s:
            if self._ready_at_s(lane) <= now_s:
                return lane
        return None

    def _wait_s(self) -> float:
        """How long until the next lane is ready."""
        return max(0.0, min(map(self._ready_at_s, self._paused_until_s)) - self._clock())

    def _ready_at_s(self, lane: Lane) -> float:
        from_s = lane.linger_from_s
        paused_s = self._paused_until_s[lane]
        return paused_s if from_s is None else max(paused_s, from_s + lane.linger_s(self._linger_s))

    def _give_up(self, lane: Lane, error: Exception) -> None:
        self._give_up_lane(lane, error, in_flight=lane is self._under_way)
        self._drop(lane)

    def _drop(self, lane: Lane) -> None:
        del self._paused_until_s[lane]
        self._drop_lane(lane)

    def _progress(self, batch: Batch) -> None:
        _wake_all(batch.waiters)
        if self._outbox.room_waiters and not self._outbox.crowded:
            _wake_all(self._outbox.room_waiters)


def _wake_all(waiters: dict[threading.Event, Any]) -> None:
    for waiter in waiters:
        waiter.set()
    waiters.clear()


_senders: weakref.WeakSet[ThreadSender] = weakref.WeakSet()


def _in_forked_child() -> None:
    """Reset all senders: threads are gone, locks may be held. One new lock per outbox."""
    locks: dict[int, threading.RLock] = {}
    lanes: list[Lane] = []
    for sender in list(_senders):
        outbox = sender._outbox
        if id(outbox) not in locks:
            locks[id(outbox)] = threading.RLock()
            outbox.reset_after_fork()
        lanes += sender._reset_after_fork(locks[id(outbox)])
    error = ClientError("the process was forked: its parent sends this message")
    for lane in lanes:
        # The thread that sends may have been noting an answer, so that a batch is half settled.
        with suppress(AssertionError):
            for batch, _ in lane.give_up(error, in_flight=False):
                _wake_all(batch.waiters)


def _at_exit() -> None:
    """Let the daemon threads send queued messages, and log those that could not be sent."""
    until_s = time.monotonic() + EXIT_FOR_S
    outboxes: dict[int, Outbox] = {}
    late: list[ThreadSender] = []
    for sender in list(_senders):
        outbox = outboxes.setdefault(id(sender._outbox), sender._outbox)
        left_s = min(outbox.limits.close_for_s, until_s - time.monotonic())
        try:
            sender.flush(max(0.0, left_s))
        except TimeoutError:
            late.append(sender)
    for sender in late:
        sender.abandon(ClientError("the program ended before the message was sent"))
    for outbox in outboxes.values():
        failed = outbox.take_unseen()
        if failed is not None:
            _log.error("at exit: %s", failed)


os.register_at_fork(after_in_child=_in_forked_child)
atexit.register(_at_exit)
