"""Queued messages: the handle of one, and the methods of clients and brokers that queue them.

One handle is created per send, so it stores only the batch and the row number; the outcome is in
the batch. A failure counts as read when the program looks at it. `flush()` and `close()` raise the
failures that were never read. The methods of clients and embedded brokers differ for threads and
asyncio.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from datetime import timedelta
from typing import Protocol, Unpack

from delaylog.client.handlers import noted
from delaylog.client.keywords import QueuedSendKeywords, TimeLimit
from delaylog.client.models import Sent
from delaylog.client.sending.batch import Batch


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


# ---------------------------------------------------------------------------------- the methods


class Queued(Protocol):
    """A message that was queued by `send_soon`. Any number of threads may wait for it."""

    def done(self) -> bool:
        """Whether the message was sent or has failed."""

    def exception(self) -> BaseException | None:
        """The error, or None if the message was sent. InvalidStateError while it is pending."""

    def result(self, timeout: timedelta | None = None) -> Sent:
        """Wait for the Sent, or raise the error. After TimeoutError sending continues."""


class Queueing(ABC):
    """For threads."""

    @abstractmethod
    def send_soon(
        self, topic: str, body: bytes | str | None = None, **fields: Unpack[QueuedSendKeywords]
    ) -> Queued:
        """Queue one message without waiting; call `result()` or `flush()` later."""

    @abstractmethod
    def flush(self, **limits: Unpack[TimeLimit]) -> None:
        """Wait for all queued messages. SendFailed reports failures that nobody has read."""


class AsyncQueueing(ABC):
    """For asyncio."""

    @abstractmethod
    def send_soon(
        self, topic: str, body: bytes | str | None = None, **fields: Unpack[QueuedSendKeywords]
    ) -> Awaitable[Sent]:
        """Queue one message without waiting; await what it returns, or `flush()`, later."""

    @abstractmethod
    async def flush(self, **limits: Unpack[TimeLimit]) -> None:
        """Wait for all queued messages. SendFailed reports failures that nobody has read."""

    @abstractmethod
    async def room(self) -> None:
        """Wait until another message may be queued."""
