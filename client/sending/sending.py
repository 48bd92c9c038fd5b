"""Sending: the handle of a queued message.

One is created per send, so it stores only the batch and the row number; the outcome is in the
batch. A failure counts as read when the program looks at it. `flush()` and `close()` raise the
failures that were never read.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta

from delaylog.client.holding import noted
from delaylog.client.models import Sent
from delaylog.client.sending.batch import Batch
from delaylog.client.wire.durations import seconds_of


class Sending:
    """The handle of one queued message."""

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: Batch, row: int) -> None:
        self._batch = batch
        self._row = row

    def __repr__(self) -> str:
        state = "done" if self.done() else "under way"
        return f"<{type(self).__name__} to {self._batch.topic}: {state}>"

    def done(self) -> bool:
        """Whether the message was sent or has failed."""
        return self._batch.is_settled(self._row)

    def exception(self) -> BaseException | None:
        """The error, or None if the message was sent. InvalidStateError while it is pending."""
        outcome = self._outcome()
        return None if isinstance(outcome, Sent) else outcome

    def _outcome(self) -> Sent | BaseException:
        if not self._batch.is_settled(self._row):
            # Imported here: a program with threads does without asyncio.
            from asyncio import InvalidStateError

            raise InvalidStateError("the message is under way")
        return self._batch.outcome(self._row)

    def _ended(self) -> Sent:
        outcome = self._batch.outcome(self._row)
        if isinstance(outcome, BaseException):
            # Several callers may raise this exception, each with its own traceback.
            raise outcome.with_traceback(None)
        return noted(self._batch.topic, outcome)


class ThreadSending(Sending):
    """The handle of a send of a program with threads. Any number of threads may wait."""

    __slots__ = ("_lock",)

    def __init__(self, batch: Batch, row: int, lock: threading.Lock) -> None:
        super().__init__(batch, row)
        self._lock = lock

    def result(self, timeout_s: float | None = None, *, timeout: timedelta | None = None) -> Sent:
        """Wait for the Sent, or raise the error. After TimeoutError sending continues."""
        timeout_s = seconds_of("timeout", timeout, timeout_s, or_zero=True)
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
