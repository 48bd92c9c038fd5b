"""Consumer groups: how far they have read, who reads, what is delivered and not acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from delaylog.broker.keyspace.streams.order import IdOrder

UNKNOWN: Final = -1
"""How many entries a group has read, when that cannot be said."""


@dataclass(slots=True, eq=False)
class Consumer:
    """One reader of a group."""

    name: bytes
    seen_ms: int
    """When it last asked for something."""
    pending: IdOrder[Pending] = field(default_factory=IdOrder)


@dataclass(slots=True, eq=False)
class Pending:
    """An entry that was delivered and not acknowledged."""

    consumer: Consumer
    delivered_ms: int
    count: int
    """Deliveries."""


@dataclass(slots=True, eq=False)
class Group:
    """A group of consumers; each entry goes to one of them."""

    last_id: int
    """Of what was delivered last."""
    entries_read: int
    consumers: dict[bytes, Consumer] = field(default_factory=dict)
    pending: IdOrder[Pending] = field(default_factory=IdOrder)
    """What all consumers have; each of them has its own again."""

    def deliver(self, number: int, consumer: Consumer, now_ms: int, count: int) -> None:
        """An entry is with a consumer now, whoever had it."""
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
        """An entry is pending no more; True if it was."""
        pending = self.pending.remove(number)
        if pending is None:
            return False
        pending.consumer.pending.remove(number)
        return True

    def dismiss(self, consumer: Consumer) -> int:
        """Remove a consumer with all it has; returns how much that was."""
        del self.consumers[consumer.name]
        for number, _ in consumer.pending.starting():
            self.pending.remove(number)
        return len(consumer.pending)

    def plain(self) -> list[Any]:
        """All of it as numbers, bytes and lists."""
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
        """The group that `plain` was taken of."""
        last_id, entries_read, consumers, pending = plain
        group = cls(int.from_bytes(last_id, "big"), entries_read)
        readers = [Consumer(name, seen_ms) for name, seen_ms in consumers]
        group.consumers = {consumer.name: consumer for consumer in readers}
        for number, index, delivered_ms, count in pending:
            group.deliver(int.from_bytes(number, "big"), readers[index], delivered_ms, count)
        return group
