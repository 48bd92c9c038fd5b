"""Ports on anything that receives and settles as the clients do, such as an embedded broker.

The one rule: such a queue is one shard.
`AsyncWorker(async_queue_ports(queue))` runs consumers on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from delaylog.client._async.workers.ports import AsyncPort
from delaylog.client.models import Settled, TagsMode
from delaylog.client.workers.consumer import Consumer

if TYPE_CHECKING:
    from delaylog.client.message import Message


class AsyncQueue(Protocol):
    """What is needed of it."""

    async def receive(
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

    async def ack(self, messages: Sequence[Message]) -> list[Settled]:
        """End them."""

    async def nack(self, messages: Sequence[Message], *, delay_ms: int | None) -> list[Settled]:
        """Have them come again."""

    async def extend(self, messages: Sequence[Message], *, lease_ms: int) -> list[Settled]:
        """Hold them longer."""


def async_queue_ports(queue: AsyncQueue) -> Callable[[Consumer], Sequence[AsyncPort]]:
    """The ports of an AsyncWorker."""
    return lambda consumer: [AsyncQueuePort(queue, consumer)]


class AsyncQueuePort:
    """The one shard of such a queue."""

    def __init__(self, queue: AsyncQueue, consumer: Consumer) -> None:
        self.name = "this process"
        self.ack, self.nack, self.extend = queue.ack, queue.nack, queue.extend
        self._queue = queue
        self._consumer = consumer

    async def receive(self, *, max: int, wait_ms: int) -> Sequence[Message]:
        """Lease up to `max` ready messages."""
        of = self._consumer
        return await self._queue.receive(
            of.topic,
            max=max,
            wait_ms=wait_ms,
            lease_ms=of.lease_ms,
            group=of.group,
            tags=of.tags,
            tags_mode=of.tags_mode,
            exact_tags=of.exact_tags,
        )
