"""What the recipes need of a client: the few calls that they are made of.

The one rule: a recipe sees nothing else, so it runs on `Client` against brokers and on an embedded
broker alike. Names, values and failures are the client's (`delaylog.client.errors`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from delaylog.client.message import Message
from delaylog.client.models import (
    Changed,
    MessageInfo,
    NewMessage,
    Sent,
    Settled,
    Stats,
    TopicInfo,
    TopicSettings,
)
from delaylog.client.settling import Verb


class QueuePort(Protocol):
    """One namespace of one broker, cluster, set of shards, or embedded broker."""

    def send_many(
        self, topic: str, messages: Iterable[NewMessage | bytes | str], **defaults: Any
    ) -> list[Sent]:
        """Send all of them; answers what became of each, in their order."""

    def receive(
        self,
        topic: str,
        *,
        max: int = 1,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        ids: Sequence[str] = (),
    ) -> list[Message]:
        """Lease what is ready, of `ids` only those."""

    def ack(self, messages: Message | Iterable[Message]) -> list[Settled]:
        """They are done with."""

    def nack(
        self, messages: Message | Iterable[Message], *, delay_ms: int | None = None
    ) -> list[Settled]:
        """They failed."""

    def extend(self, messages: Message | Iterable[Message], *, lease_ms: int) -> list[Settled]:
        """Their leases end so long from now; 0 gives them back."""

    def settle_ids(
        self, topic: str, verb: Verb, ids: Sequence[str], *, lease_ms: int | None = None
    ) -> list[Settled]:
        """`ack`, `nack` or `extend` by bare ids, whoever has the messages."""

    def peek(self, topic: str, *, max: int = 1) -> list[MessageInfo]:
        """What is ready, without leasing it."""

    def get(self, topic: str, id: str) -> MessageInfo:
        """One message with its state. NotFound."""

    def messages(
        self, topic: str, *, state: str | Sequence[str] | None = None, bodies: bool = False
    ) -> Iterator[MessageInfo]:
        """All of some states, in due order."""

    def dead(
        self, topic: str, *, bodies: bool = False, history: bool = True
    ) -> Iterator[MessageInfo]:
        """Dead letters, in due order."""

    def cancel(self, topic: str, id: str, *, force: bool = False) -> Changed:
        """End one before delivery. NotFound, TooLate."""

    def reschedule(
        self,
        topic: str,
        id: str,
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> Changed:
        """Another time for one that waits or is ready. NotFound, TooLate."""

    def replay(
        self,
        topic: str,
        ids: Sequence[str],
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> list[Changed]:
        """Let dead ones live again, with a result each."""

    def stats(self, topic: str) -> Stats:
        """Counts by state."""

    def purge(self, topic: str, *, force: bool = False) -> Any:
        """End everything; `force`: what is leased too."""

    def get_topic(self, topic: str) -> TopicInfo:
        """A topic and its settings. NotFound."""

    def put_topic(
        self, topic: str, settings: TopicSettings | Mapping[str, Any] | None = None
    ) -> TopicInfo:
        """Make a topic, or replace its settings. Conflict where slots differ."""
