"""What `queues` and workers need of a client, as a Protocol.

The one rule: what is written against these runs on a client of brokers and on an embedded broker
alike; names, values and failures are those of the clients.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Unpack

from delaylog.client.keywords import (
    DueKeywords,
    ListKeywords,
    PeekKeywords,
    ReceiveKeywords,
    SendKeywords,
)
from delaylog.client.message import Message
from delaylog.client.models import (
    Changed,
    GroupInfo,
    MessageInfo,
    NewMessage,
    Sent,
    Settled,
    Stats,
    TopicInfo,
    TopicSettings,
)


class AsyncQueueClient(Protocol):
    """One namespace of one broker, of several as shards, or of an embedded one."""

    def send(
        self,
        topic: str,
        body: bytes | str,
        **fields: Unpack[SendKeywords],
    ) -> Awaitable[Sent]:
        """Send one message; without a time it is due now. Answered when it is on disk."""

    async def receive(self, topic: str, **asked: Unpack[ReceiveKeywords]) -> list[Message]:
        """Lease up to `max` ready messages, waiting up to `wait_ms` for the first."""

    async def send_many(
        self,
        topic: str,
        messages: Iterable[NewMessage | bytes | str],
        **defaults: Unpack[SendKeywords],
    ) -> list[Sent]:
        """Send all of them; what became of each, in their order."""

    async def peek(self, topic: str, **asked: Unpack[PeekKeywords]) -> list[MessageInfo]:
        """What is ready now, without leasing it."""

    async def ack(self, messages: Message | Iterable[Message]) -> list[Settled]:
        """They are done with."""

    async def nack(
        self, messages: Message | Iterable[Message], *, delay_ms: int | None = None
    ) -> list[Settled]:
        """They failed, and come again after `delay_ms`, or the backoff."""

    async def extend(
        self, messages: Message | Iterable[Message], *, lease_ms: int
    ) -> list[Settled]:
        """They are held `lease_ms` from now; 0 gives them back."""

    async def get(
        self, topic: str, id: str, *, group: str | None = None, life: bool = False
    ) -> MessageInfo:
        """One message as a group sees it. NotFound."""

    async def cancel(self, topic: str, id: str, *, force: bool = False) -> Changed:
        """End one before delivery. NotFound, TooLate."""

    async def reschedule(
        self,
        topic: str,
        id: str,
        *,
        priority: int | None = None,
        **due: Unpack[DueKeywords],
    ) -> Changed:
        """Another time or priority for one that waits or is ready. NotFound, TooLate."""

    async def replay(
        self, topic: str, ids: Sequence[str], **due: Unpack[DueKeywords]
    ) -> list[Changed]:
        """Let dead messages live again, with a result each."""

    def messages(
        self,
        topic: str,
        *,
        state: str | Sequence[str] | None = None,
        **filter: Unpack[ListKeywords],
    ) -> AsyncIterator[MessageInfo]:
        """The topic's messages in due order."""

    def dead(self, topic: str, **filter: Unpack[ListKeywords]) -> AsyncIterator[MessageInfo]:
        """Dead letters in due order."""

    async def topics(self) -> list[TopicInfo]:
        """The topics of the namespace."""

    async def get_topic(self, topic: str) -> TopicInfo:
        """A topic and its settings. NotFound."""

    async def put_topic(
        self, topic: str, settings: TopicSettings | Mapping[str, Any] | None = None
    ) -> TopicInfo:
        """Make a topic, or replace its settings. Conflict where `slots` differ."""

    async def drop_topic(self, topic: str, *, force: bool = False) -> None:
        """Delete a topic: an empty one, or by force any."""

    async def stats(self, topic: str, *, group: str | None = None) -> Stats:
        """Counts by state as a group sees them. NotFound."""

    async def purge(self, topic: str, *, group: str | None = None, force: bool = False) -> int:
        """End what waits or is ready; `force`: what is leased too. How many that were."""

    async def put_group(self, topic: str, group: str, *, ephemeral: bool = False) -> GroupInfo:
        """Make a group, which sees what is sent from now on."""
