"""Ports on anything that receives and settles as the clients do, such as an embedded broker.

The one rule: such a queue is one shard.
`ThreadWorker(queue_ports(queue))` runs consumers on it.

Made from client/_async/workers/queue_ports.py by `make twins`: change that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from delaylog.client._sync.workers.ports import Port
from delaylog.client.models import Settled, TagsMode
from delaylog.client.workers.consumer import Consumer

if TYPE_CHECKING:
    from delaylog.client.message import Message


class Queue(Protocol):
    """What is needed of it."""

    def receive(
        self,
        topic: str,
        *,
        max: int,
        wait_ms: int,
        lease_ms: int | None,
        group: str | None,
        tags: Sequence[str],
        tags_mode: TagsMode,
        exact_tags: bool,
    ) -> list[Message]:
        """Lease messages."""

    def ack(self, messages: Sequence[Message]) -> list[Settled]:
        """End them."""

    def nack(self, messages: Sequence[Message], *, delay_ms: int | None) -> list[Settled]:
        """Have them come again."""

    def extend(self, messages: Sequence[Message], *, lease_ms: int) -> list[Settled]:
        """Hold them longer."""


def queue_ports(queue: Queue) -> Callable[[Consumer], Sequence[Port]]:
    """The ports of an ThreadWorker."""
    return lambda consumer: [QueuePort(queue, consumer)]


class QueuePort:
    """The one shard of such a queue."""

    def __init__(self, queue: Queue, consumer: Consumer) -> None:
        self.name = "this process"
        self.ack, self.nack, self.extend = queue.ack, queue.nack, queue.extend
        self._queue = queue
        self._consumer = consumer

    def receive(self, *, max: int, wait_ms: int) -> Sequence[Message]:
        """Lease up to `max` ready messages."""
        of = self._consumer
        return self._queue.receive(
            of.topic,
            max=max,
            wait_ms=wait_ms,
            lease_ms=of.lease_ms,
            group=of.group,
            tags=of.tags,
            tags_mode=of.tags_mode,
            exact_tags=of.exact_tags,
        )
