"""Sending: a message that was handed over, and what becomes of it.

It is made for every single send, so it holds a batch and a row number and nothing else; the answer
of the batch holds what it will say. The one rule: looking at a failure is what counts as knowing
of it; failures that nobody looked at are raised by `flush()` and `close()`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from typing import Any

from delaylog.client.models import Sent
from delaylog.client.sending.batch import Batch


class Sending:
    """One message on its way."""

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: Batch, row: int) -> None:
        self._batch = batch
        self._row = row

    def __repr__(self) -> str:
        state = "done" if self.done() else "under way"
        return f"<{type(self).__name__} to {self._batch.topic}: {state}>"

    def done(self) -> bool:
        """Whether it was sent, or given up."""
        return self._batch.is_settled(self._row)

    def exception(self) -> BaseException | None:
        """Why it was given up, None when it was sent. InvalidStateError while it is under way."""
        outcome = self._outcome()
        return None if isinstance(outcome, Sent) else outcome

    def _outcome(self) -> Sent | BaseException:
        if not self._batch.is_settled(self._row):
            raise asyncio.InvalidStateError("the message is under way")
        return self._batch.outcome(self._row)

    def _ended(self) -> Sent:
        outcome = self._batch.outcome(self._row)
        if isinstance(outcome, BaseException):
            # Several may raise it, each from its own place.
            raise outcome.with_traceback(None)
        return outcome


class AsyncSending(Sending):
    """One that any number of tasks may await; cancelling one harms neither it nor the others."""

    __slots__ = ()

    def result(self) -> Sent:
        """What an await gives, at once. InvalidStateError while it is under way."""
        self._outcome()
        return self._ended()

    def __await__(self) -> Generator[Any, None, Sent]:
        batch = self._batch
        while not (batch.answered or batch.is_settled(self._row)):
            # A future for each who waits: a cancelled task cancels the one it waits for.
            waiter = asyncio.get_running_loop().create_future()
            batch.waiters[waiter] = None
            try:
                yield from waiter
            finally:
                batch.waiters.pop(waiter, None)
        return self._ended()


class ThreadSending(Sending):
    """One that any number of threads may wait for."""

    __slots__ = ("_lock",)

    def __init__(self, batch: Batch, row: int, lock: threading.Lock) -> None:
        super().__init__(batch, row)
        self._lock = lock

    def result(self, timeout_s: float | None = None) -> Sent:
        """Wait until it was sent; raises why it was given up, or TimeoutError: it goes on then."""
        batch = self._batch
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.done():
            waiter = threading.Event()
            with self._lock:
                # Under the lock that ends take: otherwise the wake could come before the wait.
                if self.done():
                    break
                batch.waiters[waiter] = None
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if not waiter.wait(left_s):
                with self._lock:
                    batch.waiters.pop(waiter, None)
                if not self.done():
                    raise TimeoutError(f"the message was not sent within {timeout_s} s")
        return self._ended()
