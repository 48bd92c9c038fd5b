"""What `queues` and workers need of a client, as a Protocol.

The one rule: what is written against these runs on a client of brokers and on an embedded broker
alike; names, values and failures are those of the clients.

Made from client/_async/surface.py by `make twins`: change that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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


class QueueClient(Protocol):
    """One namespace of one broker, of several as shards, or of an embedded one."""

    def send(
        self,
        topic: str,
        body: bytes | str,
        **fields: Unpack[SendKeywords],
    ) -> Sent:
        """Send one message; without a time it is due now. Answered when it is on disk."""

    def receive(self, topic: str, **asked: Unpack[ReceiveKeywords]) -> list[Message]:
        """Lease up to `max` ready messages, waiting up to `wait_ms` for the first."""

    def send_many(
        self,
        topic: str,
        messages: Iterable[NewMessage | bytes | str],
        **defaults: Unpack[SendKeywords],
    ) -> list[Sent]:
        """Send all of them; what became of each, in their order."""

    def peek(self, topic: str, **asked: Unpack[PeekKeywords]) -> list[MessageInfo]:
        """What is ready now, without leasing it."""

    def ack(self, messages: Message | Iterable[Message]) -> list[Settled]:
        """They are done with."""

    def nack(
        self, messages: Message | Iterable[Message], *, delay_ms: int | None = None
    ) -> list[Settled]:
        """They failed, and come again after `delay_ms`, or the backoff."""

    def extend(self, messages: Message | Iterable[Message], *, lease_ms: int) -> list[Settled]:
        """They are held `lease_ms` from now; 0 gives them back."""

    def get(
        self, topic: str, id: str, *, group: str | None = None, life: bool = False
    ) -> MessageInfo:
        """One message as a group sees it. NotFound."""

    def cancel(self, topic: str, id: str, *, force: bool = False) -> Changed:
        """End one before delivery. NotFound, TooLate."""

    def reschedule(
        self,
        topic: str,
        id: str,
        *,
        priority: int | None = None,
        **due: Unpack[DueKeywords],
    ) -> Changed:
        """Another time or priority for one that waits or is ready. NotFound, TooLate."""

    def replay(self, topic: str, ids: Sequence[str], **due: Unpack[DueKeywords]) -> list[Changed]:
        """Let dead messages live again, with a result each."""

    def messages(
        self,
        topic: str,
        *,
        state: str | Sequence[str] | None = None,
        **filter: Unpack[ListKeywords],
    ) -> Iterator[MessageInfo]:
        """The topic's messages in due order."""

    def dead(self, topic: str, **filter: Unpack[ListKeywords]) -> Iterator[MessageInfo]:
        """Dead letters in due order."""

    def topics(self) -> list[TopicInfo]:
        """The topics of the namespace."""

    def get_topic(self, topic: str) -> TopicInfo:
        """A topic and its settings. NotFound."""

    def put_topic(
        self, topic: str, settings: TopicSettings | Mapping[str, Any] | None = None
    ) -> TopicInfo:
        """Make a topic, or replace its settings. Conflict where `slots` differ."""

    def drop_topic(self, topic: str, *, force: bool = False) -> None:
        """Delete a topic: an empty one, or by force any."""

    def stats(self, topic: str, *, group: str | None = None) -> Stats:
        """Counts by state as a group sees them. NotFound."""

    def purge(self, topic: str, *, group: str | None = None, force: bool = False) -> int:
        """End what waits or is ready; `force`: what is leased too. How many that were."""

    def put_group(self, topic: str, group: str, *, ephemeral: bool = False) -> GroupInfo:
        """Make a group, which sees what is sent from now on."""
