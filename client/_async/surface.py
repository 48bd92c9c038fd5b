"""AsyncQueueClient: the calls that `AsyncClient` and the embedded broker have, as their base class.

Code written for it runs on both. The calls below differ between them; the others are those of its
base classes, so neither can lack one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from types import TracebackType
from typing import Self, Unpack

from delaylog.client._async.control_calls import AsyncControlCalls
from delaylog.client._async.message import AsyncMessage
from delaylog.client._async.subscriptions import AsyncSubscribing
from delaylog.client._async.tasks import AsyncTasking
from delaylog.client._async.timers import TIMERS, AsyncTimer
from delaylog.client._async.workers.worker import AsyncWorker
from delaylog.client.calls.messages import BulkSendKeywords
from delaylog.client.keywords import (
    ManySendKeywords,
    OneSendKeywords,
    ReceiveKeywords,
)
from delaylog.client.models import NewMessage, Sent
from delaylog.client.sending.queued import AsyncQueueing
from delaylog.client.wire.bulk import SendAnswer, Texts


class AsyncQueueClient(
    AsyncControlCalls,
    AsyncSubscribing,
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

    def timer(self, key: str, *, topic: str = TIMERS) -> AsyncTimer:
        """The timer of a key: `set`, `move`, `fire` or `cancel` it.

        When it fires, a consumer of the topic gets a message whose id is the key.
        """
        return AsyncTimer(self, topic, key)

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
        """Lease up to `max` ready messages, waiting up to `wait` for the first."""
