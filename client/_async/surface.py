"""AsyncQueueClient: the calls that `AsyncClient` and the embedded broker have, as their base class.

Code written for it runs on both. The calls below differ between them; the others are those of its
base classes, so neither can lack one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import Self, Unpack

from delaylog.client._async.control_calls import AsyncControlCalls
from delaylog.client._async.message import AsyncMessage
from delaylog.client._async.subscribing import AsyncSubscribing
from delaylog.client._async.tasking import AsyncTasking
from delaylog.client._async.timing import AsyncTiming
from delaylog.client._async.topic_calls import AsyncTopicCalls
from delaylog.client._async.workers.worker import AsyncWorker
from delaylog.client.calls.messages import BulkSendKeywords
from delaylog.client.keywords import (
    ManySendKeywords,
    OneSendKeywords,
    ReceiveKeywords,
    TimeLimit,
)
from delaylog.client.message import LeasedMessage
from delaylog.client.models import NewMessage, Sent, Settled
from delaylog.client.sending.queueing import AsyncQueueing
from delaylog.client.wire.bulk import Texts
from delaylog.client.wire.bulk_answers import SendAnswer


class AsyncQueueClient(
    AsyncControlCalls,
    AsyncTopicCalls,
    AsyncSubscribing,
    AsyncTiming,
    AsyncTasking,
    AsyncWorker,
    AsyncQueueing,
):
    """One namespace of a broker, of several brokers as shards, or of an embedded broker."""

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    @abstractmethod
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""

    @abstractmethod
    async def close(self) -> None:
        """Stop the consumers, finish the sends, and release what it holds."""

    @abstractmethod
    async def send(
        self, topic: str, body: bytes | str | None = None, **fields: Unpack[OneSendKeywords]
    ) -> Sent:
        """Send one message; without a time it is due now. Returns when it is on disk."""

    @abstractmethod
    async def send_many(
        self,
        topic: str,
        messages: Iterable[NewMessage | bytes | str],
        **defaults: Unpack[ManySendKeywords],
    ) -> list[Sent]:
        """Send messages, with a result for each, in order."""

    @abstractmethod
    async def send_columns(
        self,
        topic: str,
        bodies: Texts,
        *,
        shard: str | None = None,
        **columns: Unpack[BulkSendKeywords],
    ) -> SendAnswer:
        """Send many messages as columns; see `bulk.encode_send`."""

    @abstractmethod
    async def receive(self, topic: str, **asked: Unpack[ReceiveKeywords]) -> list[AsyncMessage]:
        """Lease up to `max` ready messages, waiting up to `wait_ms` for the first."""

    @abstractmethod
    async def ack(
        self, messages: LeasedMessage | Iterable[LeasedMessage], **limits: Unpack[TimeLimit]
    ) -> list[Settled]:
        """Acknowledge messages."""

    @abstractmethod
    async def nack(
        self,
        messages: LeasedMessage | Iterable[LeasedMessage],
        *,
        delay: timedelta | None = None,
        delay_ms: int | None = None,
        reason: str | None = None,
        **limits: Unpack[TimeLimit],
    ) -> list[Settled]:
        """Have messages redelivered after a delay, or after the backoff."""

    @abstractmethod
    async def reject(
        self,
        messages: LeasedMessage | Iterable[LeasedMessage],
        *,
        reason: str | None = None,
        **limits: Unpack[TimeLimit],
    ) -> list[Settled]:
        """Make messages dead letters now."""

    @abstractmethod
    async def release(
        self, messages: LeasedMessage | Iterable[LeasedMessage], **limits: Unpack[TimeLimit]
    ) -> list[Settled]:
        """Return messages as if they had not been received."""

    @abstractmethod
    async def extend(
        self,
        messages: LeasedMessage | Iterable[LeasedMessage],
        *,
        lease: timedelta | None = None,
        lease_ms: int | None = None,
        **limits: Unpack[TimeLimit],
    ) -> list[Settled]:
        """Extend leases to this time from now."""

    @abstractmethod
    async def begin(
        self,
        messages: LeasedMessage | Iterable[LeasedMessage],
        *,
        lease: timedelta | None = None,
        lease_ms: int | None = None,
        **limits: Unpack[TimeLimit],
    ) -> list[Settled]:
        """Count attempts from now on at messages that were received with `begin`."""
