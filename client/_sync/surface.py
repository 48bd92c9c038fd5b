"""QueueClient: the calls that `Client` and the embedded broker have, as their base class.

Code written for it runs on both. The calls below differ between them; the others are those of its
base classes, so neither can lack one.

Made from client/_async/surface.py by `make twins`: change that one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from types import TracebackType
from typing import Self, Unpack

from delaylog.client._sync.control_calls import ControlCalls
from delaylog.client._sync.message import Message
from delaylog.client._sync.subscriptions import Subscribing
from delaylog.client._sync.tasks import Tasking
from delaylog.client._sync.timers import TIMERS, Timer
from delaylog.client._sync.workers.worker import ThreadWorker
from delaylog.client.calls.messages import BulkSendKeywords
from delaylog.client.keywords import (
    ManySendKeywords,
    OneSendKeywords,
    ReceiveKeywords,
)
from delaylog.client.models import NewMessage, Sent
from delaylog.client.sending.queued import Queueing
from delaylog.client.wire.bulk import SendAnswer, Texts


class QueueClient(
    ControlCalls,
    Subscribing,
    Tasking,
    ThreadWorker,
    Queueing,
):
    """One namespace of a broker, of several brokers as shards, or of an embedded broker."""

    def __enter__(self) -> Self:
        self._check_open()
        return self

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""

    def timer(self, key: str, *, topic: str = TIMERS) -> Timer:
        """The timer of a key: `set`, `move`, `fire` or `cancel` it.

        When it fires, a consumer of the topic gets a message whose id is the key.
        """
        return Timer(self, topic, key)

    @abstractmethod
    def close(self) -> None:
        """Stop the consumers, finish the sends, and release what it holds."""

    @abstractmethod
    def send(
        self, topic: str, body: bytes | str | None = None, **fields: Unpack[OneSendKeywords]
    ) -> Sent:
        """Send one message; without a time it is due now. Returns when it is on disk."""

    @abstractmethod
    def send_many(
        self,
        topic: str,
        messages: Iterable[NewMessage | bytes | str],
        **defaults: Unpack[ManySendKeywords],
    ) -> list[Sent]:
        """Send messages, with a result for each, in order."""

    @abstractmethod
    def send_columns(
        self,
        topic: str,
        bodies: Texts,
        *,
        shard: str | None = None,
        **columns: Unpack[BulkSendKeywords],
    ) -> SendAnswer:
        """Send many messages as columns; see `bulk.encode_send`."""

    @abstractmethod
    def receive(self, topic: str, **asked: Unpack[ReceiveKeywords]) -> list[Message]:
        """Lease up to `max` ready messages, waiting up to `wait` for the first."""
