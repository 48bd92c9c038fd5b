"""LeasedMessage: a view of one row of a received batch.

Creating a message decodes none of its fields. A column of the batch becomes a list when the field
is first read on any of its messages; a body, id, key, tag or header is cut out of its block when it
is read. A message keeps its whole batch in memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate
from typing import Any

import msgpack

from delaylog.client.codec import JSON, Codec
from delaylog.client.wire.bulk import ReceivedBatch, ref_to_id

U64 = 0xFFFF_FFFF_FFFF_FFFF


class MessageBatch:
    """The columns of one receive and their origin."""

    def __init__(
        self, columns: ReceivedBatch, topic: str, group: str | None = None, shard: str = ""
    ) -> None:
        self.columns = columns
        self.topic = topic
        self.group = group
        self.shard = shard
        self.lease_until_ms = columns.lease_until_ms
        """When the lease ends, by the broker's clock, as last reported; extending it moves this."""
        self.lost: set[int] = set()
        """Rows known to have lost their lease before they were settled."""
        self.settled: set[int] = set()
        """Rows whose messages were settled by their own methods or by those of the client."""
        self.settler: Any = None
        """What settles the messages: the link of their shard."""
        self.stream: Any = None
        """The stream that brought the messages, which settles them while it is open."""
        self.codec: Codec = JSON
        """Decodes the values of the messages."""

    @cached_property
    def refs(self) -> list[int]:
        """The ref of each row."""
        return self.columns.refs.tolist()

    @cached_property
    def due_ms(self) -> list[int]:
        """The due time of each row."""
        return self.columns.deliver_at_ms.tolist()

    @cached_property
    def attempts(self) -> list[int]:
        """The number of deliveries of each row, this one included."""
        return self.columns.attempts.tolist()

    @cached_property
    def priorities(self) -> list[int]:
        """The priority of each row."""
        return self.columns.priority.tolist()

    @cached_property
    def body_ends(self) -> list[int]:
        """Offsets into the block of bodies: body `row` lies from [row] to [row + 1]."""
        return _ends(self.columns.body_sizes)

    @cached_property
    def id_ends(self) -> list[int]:
        """The same for ids."""
        return _ends(self.columns.id_sizes)

    @cached_property
    def key_ends(self) -> list[int]:
        """The same for keys."""
        return _ends(self.columns.key_sizes)

    @cached_property
    def tags_ends(self) -> list[int]:
        """The same for tags."""
        return _ends(self.columns.tags_sizes)

    @cached_property
    def headers_ends(self) -> list[int]:
        """The same for headers."""
        return _ends(self.columns.headers_sizes)


class LeasedMessage:
    """A leased message. Pass it to `ack`, `nack` or `extend` of the client it came from.

    Two Messages are equal if they are the same delivery: same shard, topic, lease and ref.
    """

    __slots__ = ("batch", "row")

    def __init__(self, batch: MessageBatch, row: int) -> None:
        self.batch = batch
        self.row = row

    @property
    def id(self) -> str:
        """The id that the sender gave, otherwise the one that the broker generated."""
        batch, row = self.batch, self.row
        block = batch.columns.id_block
        if block:
            ends = batch.id_ends
            if own := block[ends[row] : ends[row + 1]]:
                return own.decode()
        return ref_to_id(batch.refs[row])

    @property
    def ref(self) -> int:
        """The number of the message, unique within its broker."""
        return self.batch.refs[self.row]

    @property
    def lease(self) -> int:
        """The number of the lease, which all messages of one receive share."""
        return self.batch.columns.lease

    @property
    def receipt(self) -> str:
        """Lease and ref as text, the form that JSON calls take."""
        return f"{self.lease & U64:016x}{self.ref & U64:016x}"

    @property
    def body(self) -> bytes:
        """The body as bytes."""
        ends, row = self.batch.body_ends, self.row
        return self.batch.columns.body_block[ends[row] : ends[row + 1]]

    @property
    def text(self) -> str:
        """The body decoded as UTF-8. UnicodeDecodeError if it is not UTF-8."""
        return self.body.decode()

    def json(self) -> Any:
        """The body parsed as JSON. ValueError if it is not JSON."""
        return JSON.decode(self.body)

    def value(self) -> Any:
        """The body decoded by the codec of the client, which is JSON unless it has another one."""
        return self.batch.codec.decode(self.body)

    @property
    def deliver_at_ms(self) -> int:
        """The due time."""
        return self.batch.due_ms[self.row]

    @property
    def attempts(self) -> int:
        """The number of this delivery, counted from 1."""
        return self.batch.attempts[self.row]

    @property
    def lease_until_ms(self) -> int:
        """When the lease ends, by the broker's clock, as last reported."""
        return self.batch.lease_until_ms

    @property
    def lease_lost(self) -> bool:
        """Whether the lease is known to have ended: another consumer may have the message now."""
        return self.row in self.batch.lost

    @lease_lost.setter
    def lease_lost(self, lost: bool) -> None:
        (self.batch.lost.add if lost else self.batch.lost.discard)(self.row)

    @property
    def settled(self) -> bool:
        """Whether `ack`, `nack`, `reject` or `release` has settled it, here or by the client."""
        return self.row in self.batch.settled

    @settled.setter
    def settled(self, settled: bool) -> None:
        (self.batch.settled.add if settled else self.batch.settled.discard)(self.row)

    @property
    def priority(self) -> int:
        """The priority; higher values are delivered first."""
        return self.batch.priorities[self.row]

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags."""
        ends, row = self.batch.tags_ends, self.row
        joined = self.batch.columns.tags_block[ends[row] : ends[row + 1]]
        return tuple(joined.decode().split("\n")) if joined else ()

    @property
    def key(self) -> str | None:
        """The ordering key, or None."""
        ends, row = self.batch.key_ends, self.row
        return self.batch.columns.key_block[ends[row] : ends[row + 1]].decode() or None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that the sender set. ValueError if they are not texts by name.

        A broker accepts no such headers; the error protects from one that is damaged or not one.
        """
        ends, row = self.batch.headers_ends, self.row
        packed = self.batch.columns.headers_block[ends[row] : ends[row + 1]]
        if not packed:
            return {}
        try:
            found = msgpack.unpackb(packed)
        except ValueError:
            found = None
        if isinstance(found, dict) and all(
            isinstance(name, str) and isinstance(text, str) for name, text in found.items()
        ):
            return found
        raise ValueError(f"the headers of message {self.id} are not texts by name")

    @property
    def topic(self) -> str:
        """The topic."""
        return self.batch.topic

    @property
    def group(self) -> str | None:
        """The group that received the message, None for the default group."""
        return self.batch.group

    @property
    def shard(self) -> str:
        """The name of the shard that delivered the message."""
        return self.batch.shard

    def _identity(self) -> tuple[str, str, int, int]:
        return self.batch.shard, self.batch.topic, self.lease, self.ref

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeasedMessage) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(id={self.id!r}, topic={self.topic!r}, "
            f"attempts={self.attempts}, deliver_at_ms={self.deliver_at_ms}, {len(self.body)} bytes)"
        )


def _ends(sizes: array[int]) -> list[int]:
    return list(accumulate(sizes, initial=0))
