"""Results of sends that do not wait for the disk, for threads and for event loops.

As in the clients, failures that no caller has read are raised by `flush` and `close`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any, Final

from delaylog.broker.embedded.calls import EmbeddedCalls
from delaylog.broker.embedded.node import NodeThread
from delaylog.client.errors import ApiError, SendFailed
from delaylog.client.models import Sent
from delaylog.client.wire.times import duration_s

FAILURES_KEPT: Final = 1_000
"""Unread failures that are kept; later ones are only counted."""


class SoonSending:
    """A send of `send_soon`: it is appended to the log, and not yet on disk.

    Any number of threads may wait for it.
    """

    __slots__ = ("_outcome", "_owner", "_position", "looked")

    def __init__(self, owner: SoonSendings, outcome: Sent | ApiError, position: int) -> None:
        self._owner = owner
        self._outcome = outcome
        self._position = position
        self.looked = False

    def done(self) -> bool:
        """Whether the send is as durable as the fsync option says, or was refused."""
        refused = isinstance(self._outcome, ApiError)
        return refused or self._owner.thread.is_safe(self._position)

    def exception(self) -> BaseException | None:
        """Why it was refused, None when it was sent. InvalidStateError while it is under way."""
        if not self.done():
            raise asyncio.InvalidStateError("the message is under way")
        self.looked = True
        return self._outcome if isinstance(self._outcome, ApiError) else None

    def result(self, timeout: timedelta | None = None) -> Sent:
        """Wait for the result. Raises the refusal, or TimeoutError; the send then goes on."""
        timeout_s = duration_s("timeout", timeout, or_zero=True)
        self.looked = True
        if isinstance(self._outcome, ApiError):
            # Several threads may raise it, each with another traceback.
            raise self._outcome.with_traceback(None)
        if not self.done():
            owner = self._owner
            owner.thread.run(owner.calls.safe(self._position), timeout_s=timeout_s)
        return self._outcome


class SoonSendings:
    """Makes the sends of `send_soon`, and keeps their failures until a caller has read them."""

    def __init__(self, thread: NodeThread, calls: EmbeddedCalls) -> None:
        self.thread, self.calls = thread, calls
        self._lock = threading.Lock()
        self._failed: list[SoonSending] = []
        self._uncounted = 0

    def hand_over(self, send: Callable[[], Sent]) -> SoonSending:
        """Make a send that does not wait for the disk. Raises ClosedError."""
        outcome: Sent | ApiError
        try:
            outcome = send()
        except ApiError as error:
            outcome = error
        sending = SoonSending(self, outcome, self.thread.engine.state.position)
        if isinstance(outcome, ApiError):
            with self._lock:
                if len(self._failed) < FAILURES_KEPT:
                    self._failed.append(sending)
                else:
                    self._uncounted += 1
        return sending

    def take_unseen(self) -> SendFailed | None:
        """The failures since the last call that no caller has read, or None."""
        with self._lock:
            failed, self._failed = self._failed, []
            uncounted, self._uncounted = self._uncounted, 0
        unseen = [sending.exception() for sending in failed if not sending.looked]
        errors = [error for error in unseen if error is not None]
        rows = len(errors) + uncounted
        return SendFailed(errors, rows) if rows else None


class EmbeddedSending:
    """A send on an event loop: await it, or let `flush()` wait for it."""

    __slots__ = ("_looked", "task")

    def __init__(self, task: asyncio.Task[Sent]) -> None:
        self.task = task
        self._looked = False

    def __await__(self) -> Generator[Any, None, Sent]:
        self._looked = True
        # If the awaiting task is cancelled, the send goes on.
        return asyncio.shield(self.task).__await__()

    def done(self) -> bool:
        """Whether it was sent, or refused."""
        return self.task.done()

    def exception(self) -> BaseException | None:
        """Why it was refused, None when it was sent. InvalidStateError while it is under way."""
        self._looked = True
        return self.task.exception()

    @property
    def unseen(self) -> BaseException | None:
        """The refusal, if no caller has read it."""
        if self._looked or not self.task.done() or self.task.cancelled():
            return None
        return self.task.exception()
