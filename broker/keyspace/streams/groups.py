"""Consumer groups: last delivered id, consumers, and pending entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from delaylog.broker.keyspace.streams.order import IdOrder

UNKNOWN: Final = -1
"""The number of entries that a group has read is unknown."""


@dataclass(slots=True, eq=False)
class Consumer:
    """One consumer of a group."""

    name: bytes
    seen_ms: int
    """Time of its last command."""
    pending: IdOrder[Pending] = field(default_factory=IdOrder)


@dataclass(slots=True, eq=False)
class Pending:
    """An entry that was delivered and is not acknowledged."""

    consumer: Consumer
    delivered_ms: int
    count: int
    """Number of deliveries."""


@dataclass(slots=True, eq=False)
class Group:
    """A group of consumers; each entry goes to one of them."""

    last_id: int
    """The id of the last delivered entry."""
    entries_read: int
    consumers: dict[bytes, Consumer] = field(default_factory=dict)
    pending: IdOrder[Pending] = field(default_factory=IdOrder)
    """Pending entries of all consumers; each consumer also has its own."""

    def deliver(self, number: int, consumer: Consumer, now_ms: int, count: int) -> None:
        """Assign a pending entry to a consumer."""
        pending = self.pending.get(number)
        if pending is None:
            pending = Pending(consumer, now_ms, count)
            self.pending.put(number, pending)
            consumer.pending.put(number, pending)
            return
        if pending.consumer is not consumer:
            pending.consumer.pending.remove(number)
            consumer.pending.put(number, pending)
            pending.consumer = consumer
        pending.delivered_ms = now_ms
        pending.count = count

    def settle(self, number: int) -> bool:
        """Acknowledge an entry; returns whether it was pending."""
        pending = self.pending.remove(number)
        if pending is None:
            return False
        pending.consumer.pending.remove(number)
        return True

    def dismiss(self, consumer: Consumer) -> int:
        """Remove a consumer and its pending entries; returns their number."""
        del self.consumers[consumer.name]
        for number, _ in consumer.pending.starting():
            self.pending.remove(number)
        return len(consumer.pending)

    def plain(self) -> list[Any]:
        """Return the group as numbers, bytes and lists."""
        indexes = {name: index for index, name in enumerate(self.consumers)}
        return [
            self.last_id.to_bytes(16, "big"),
            self.entries_read,
            [[consumer.name, consumer.seen_ms] for consumer in self.consumers.values()],
            [
                [
                    number.to_bytes(16, "big"),
                    indexes[pending.consumer.name],
                    pending.delivered_ms,
                    pending.count,
                ]
                for number, pending in self.pending.starting()
            ],
        ]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> Group:
        """Rebuild a group from `plain`."""
        last_id, entries_read, consumers, pending = plain
        group = cls(int.from_bytes(last_id, "big"), entries_read)
        readers = [Consumer(name, seen_ms) for name, seen_ms in consumers]
        group.consumers = {consumer.name: consumer for consumer in readers}
        for number, index, delivered_ms, count in pending:
            group.deliver(int.from_bytes(number, "big"), readers[index], delivered_ms, count)
        return group
