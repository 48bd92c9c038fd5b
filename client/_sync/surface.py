"""The Protocol that `queues` and workers require of a client.

Code written against it runs on a network client and on an embedded broker. Names, values and errors
are those of the clients.

Made from client/_async/surface.py by `make twins`: change that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, Unpack

from delaylog.client._sync.message import Message
from delaylog.client.keywords import (
    ManySendKeywords,
    OneSendKeywords,
    PeekKeywords,
    ReceiveKeywords,
    SubscribeKeywords,
    UpdateKeywords,
)
from delaylog.client.message import LeasedMessage
from delaylog.client.models import (
    Changed,
    GroupInfo,
    MessageInfo,
    NewMessage,
    Sent,
    Settled,
    State,
    Stats,
    TopicInfo,
    TopicSettings,
)


class QueueClient(Protocol):
    """One namespace of a broker, of several brokers as shards, or of an embedded broker."""

    def send(
        self,
        topic: str,
        body: bytes | str | None = None,
        **fields: Unpack[OneSendKeywords],
    ) -> Sent:
        """Send one message; without a time it is due now. Returns when it is on disk."""

    def receive(self, topic: str, **asked: Unpack[ReceiveKeywords]) -> list[Message]:
        """Lease up to `max` ready messages, waiting up to `wait_ms` for the first."""

    def subscribe(self, topic: str, **asked: Unpack[SubscribeKeywords]) -> Iterator[Message]:
        """Iterate over the messages of a topic as they come."""

    def send_many(
        self,
        topic: str,
        messages: Iterable[NewMessage | bytes | str],
        **defaults: Unpack[ManySendKeywords],
    ) -> list[Sent]:
        """Send messages, with a result for each, in order."""

    def peek(self, topic: str, **asked: Unpack[PeekKeywords]) -> list[MessageInfo]:
        """Return ready messages without leasing them."""

    def ack(
        self,
        messages: LeasedMessage | Iterable[LeasedMessage],
        *,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> list[Settled]:
        """Acknowledge messages."""

    def nack(
        self,
        messages: LeasedMessage | Iterable[LeasedMessage],
        *,
        delay: timedelta | None = None,
        delay_ms: int | None = None,
        reason: str | None = None,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> list[Settled]:
        """Have messages redelivered after a delay, or after the backoff."""

    def reject(
        self,
        messages: LeasedMessage | Iterable[LeasedMessage],
        *,
        reason: str | None = None,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> list[Settled]:
        """Make messages dead letters now."""

    def release(
        self,
        messages: LeasedMessage | Iterable[LeasedMessage],
        *,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> list[Settled]:
        """Return messages as if they had not been received."""

    def extend(
        self,
        messages: LeasedMessage | Iterable[LeasedMessage],
        *,
        lease: timedelta | None = None,
        lease_ms: int | None = None,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> list[Settled]:
        """Extend leases to this time from now."""

    def begin(
        self,
        messages: LeasedMessage | Iterable[LeasedMessage],
        *,
        lease: timedelta | None = None,
        lease_ms: int | None = None,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> list[Settled]:
        """Count attempts from now on at messages that were received with `begin`."""

    def get(
        self,
        topic: str,
        id: str,
        *,
        group: str | None = None,
        life: bool = False,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> MessageInfo:
        """Return a message as one group sees it. Raises NotFound."""

    def cancel(
        self,
        topic: str,
        id: str,
        *,
        force: bool = False,
        untried: bool = False,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> Changed:
        """Cancel an undelivered message. Raises NotFound or TooLate."""

    def reschedule(
        self,
        topic: str,
        id: str,
        *,
        priority: int | None = None,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        at: datetime | None = None,
        delay: timedelta | None = None,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> Changed:
        """Change the due time or priority of a waiting or ready message."""

    def replay(
        self,
        topic: str,
        ids: Sequence[str],
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        at: datetime | None = None,
        delay: timedelta | None = None,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> list[Changed]:
        """Replay dead messages, with a result for each."""

    def browse(
        self,
        topic: str,
        *,
        state: State | Literal["all"] | Sequence[State] | None = None,
        due_from: datetime | None = None,
        due_from_ms: int | None = None,
        due_to: datetime | None = None,
        due_to_ms: int | None = None,
        tag: str | None = None,
        key: str | None = None,
        group: str | None = None,
        bodies: bool = False,
    ) -> Iterator[MessageInfo]:
        """The topic's messages in due order."""

    def dead(
        self,
        topic: str,
        *,
        due_from: datetime | None = None,
        due_from_ms: int | None = None,
        due_to: datetime | None = None,
        due_to_ms: int | None = None,
        tag: str | None = None,
        key: str | None = None,
        group: str | None = None,
        cause: Literal["nack", "lease_expired", "rejected"] | None = None,
        reason: str | None = None,
        reason_prefix: str | None = None,
        bodies: bool = False,
    ) -> Iterator[MessageInfo]:
        """Dead letters in due order."""

    def topics(
        self, *, timeout: timedelta | None = None, timeout_s: float | None = None
    ) -> list[TopicInfo]:
        """The topics of the namespace."""

    def get_topic(
        self, topic: str, *, timeout: timedelta | None = None, timeout_s: float | None = None
    ) -> TopicInfo:
        """Return a topic and its settings. Raises NotFound."""

    def put_topic(
        self,
        topic: str,
        settings: TopicSettings | Mapping[str, Any] | None = None,
        *,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> TopicInfo:
        """Create a topic, or replace its settings. Conflict if `slots` differ."""

    def update_topic(self, topic: str, **settings: Unpack[UpdateKeywords]) -> TopicInfo:
        """Change the settings that are named, and no others. Raises NotFound."""

    def drop_topic(
        self,
        topic: str,
        *,
        force: bool = False,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Delete an empty topic; with `force` any topic."""

    def stats(
        self,
        topic: str,
        *,
        group: str | None = None,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> Stats:
        """Return the counts by state as one group sees them. Raises NotFound (no such group)."""

    def purge(
        self,
        topic: str,
        *,
        group: str | None = None,
        force: bool = False,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """End waiting and ready messages; `force`: also leased ones. Returns their number."""

    def put_group(
        self,
        topic: str,
        group: str,
        *,
        ephemeral: bool = False,
        timeout: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> GroupInfo:
        """Create a group. It sees the messages that are sent from now on."""
