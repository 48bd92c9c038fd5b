"""What clients and embedded brokers have to queue messages: it differs for threads and asyncio."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from datetime import timedelta
from typing import Protocol, Unpack

from delaylog.client.keywords import QueuedSendKeywords, TimeLimit
from delaylog.client.models import Sent


class Queued(Protocol):
    """A message that was queued by `send_soon`. Any number of threads may wait for it."""

    def done(self) -> bool:
        """Whether the message was sent or has failed."""

    def exception(self) -> BaseException | None:
        """The error, or None if the message was sent. InvalidStateError while it is pending."""

    def result(self, timeout_s: float | None = None, *, timeout: timedelta | None = None) -> Sent:
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
