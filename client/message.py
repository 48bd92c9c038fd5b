"""Message: one row of a received batch, looked at where it stands.

The one rule: making a Message does no work for any of its fields. The batch's columns become
lists when the first field of any of its messages is read, and each body, id, key, tag and header
is cut out when it is asked for. A message keeps its whole batch in memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from delaylog.client.wire.bulk import Int64Array, ref_to_id
from delaylog.client.wire.bulk_answers import ReceivedBatch

U64 = 0xFFFF_FFFF_FFFF_FFFF


class MessageBatch:
    """Columns of one receive and where they came from; `messages()` are its rows."""

    def __init__(
        self, columns: ReceivedBatch, topic: str, group: str | None = None, shard: str = ""
    ) -> None:
        self.columns = columns
        self.topic = topic
        self.group = group
        self.shard = shard
        self.lease_until_ms = columns.lease_until_ms
        """When the lease ends by the broker's clock, as far as was heard; extending moves it."""
        self.lost: set[int] = set()
        """Rows whose lease is known to have ended before they were settled."""

    def messages(self) -> list[Message]:
        """A Message for each row, in the broker's order."""
        # A comprehension makes them faster than map does: the call is not looked up each time.
        return [Message(self, row) for row in range(self.columns.n)]

    @cached_property
    def refs(self) -> list[int]:
        """Refs by row."""
        return _listed(self.columns.refs)

    @cached_property
    def due_ms(self) -> list[int]:
        """Due times by row."""
        return _listed(self.columns.deliver_at_ms)

    @cached_property
    def attempts(self) -> list[int]:
        """Deliveries so far by row, this one included."""
        return _listed(self.columns.attempts)

    @cached_property
    def priorities(self) -> list[int]:
        """Priorities by row."""
        return _listed(self.columns.priority)

    @cached_property
    def body_ends(self) -> list[int]:
        """Where bodies begin and end in their block: body `row` is [row] to [row + 1]."""
        return _ends(self.columns.body_sizes)

    @cached_property
    def id_ends(self) -> list[int]:
        """Of ids likewise."""
        return _ends(self.columns.id_sizes)

    @cached_property
    def key_ends(self) -> list[int]:
        """Of keys likewise."""
        return _ends(self.columns.key_sizes)

    @cached_property
    def tags_ends(self) -> list[int]:
        """Of tags likewise."""
        return _ends(self.columns.tags_sizes)

    @cached_property
    def headers_ends(self) -> list[int]:
        """Of headers likewise."""
        return _ends(self.columns.headers_sizes)


class Message:
    """A message under lease. It is settled by being handed to ack, nack or extend.

    Two Messages are equal when they are the same delivery: same shard, topic, lease and ref.
    """

    __slots__ = ("batch", "row")

    def __init__(self, batch: MessageBatch, row: int) -> None:
        self.batch = batch
        self.row = row

    @property
    def id(self) -> str:
        """The sender's own id, else the one the broker made."""
        batch, row = self.batch, self.row
        block = batch.columns.id_block
        if block:
            ends = batch.id_ends
            if own := block[ends[row] : ends[row + 1]]:
                return own.decode()
        return ref_to_id(batch.refs[row])

    @property
    def ref(self) -> int:
        """Names the message inside its broker."""
        return self.batch.refs[self.row]

    @property
    def lease(self) -> int:
        """The lease it is under, with all that came in the same answer."""
        return self.batch.columns.lease

    @property
    def receipt(self) -> str:
        """Lease and ref as the text that JSON calls take."""
        return f"{self.lease & U64:016x}{self.ref & U64:016x}"

    @property
    def body(self) -> bytes:
        """The body as bytes."""
        ends, row = self.batch.body_ends, self.row
        return self.batch.columns.body_block[ends[row] : ends[row + 1]]

    @property
    def text(self) -> str:
        """The body as text. UnicodeDecodeError where it is none."""
        return self.body.decode()

    def json(self) -> Any:
        """The body read as JSON. ValueError where it is none."""
        return json.loads(self.body)

    @property
    def deliver_at_ms(self) -> int:
        """When it was due."""
        return self.batch.due_ms[self.row]

    @property
    def attempts(self) -> int:
        """Which delivery of it this is, from 1."""
        return self.batch.attempts[self.row]

    @property
    def lease_until_ms(self) -> int:
        """When its lease ends by the broker's clock, as the receive said."""
        return self.batch.lease_until_ms

    @property
    def lease_lost(self) -> bool:
        """Whether the lease is known to have ended: somebody else may have the message by now."""
        return self.row in self.batch.lost

    @lease_lost.setter
    def lease_lost(self, lost: bool) -> None:
        (self.batch.lost.add if lost else self.batch.lost.discard)(self.row)

    @property
    def priority(self) -> int:
        """Higher goes first."""
        return self.batch.priorities[self.row]

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags."""
        ends, row = self.batch.tags_ends, self.row
        joined = self.batch.columns.tags_block[ends[row] : ends[row + 1]]
        return tuple(joined.decode().split("\n")) if joined else ()

    @property
    def key(self) -> str | None:
        """Its ordering key, None without one."""
        ends, row = self.batch.key_ends, self.row
        return self.batch.columns.key_block[ends[row] : ends[row + 1]].decode() or None

    @property
    def headers(self) -> Mapping[str, str]:
        """Texts that the sender gave along."""
        ends, row = self.batch.headers_ends, self.row
        packed = self.batch.columns.headers_block[ends[row] : ends[row + 1]]
        found: dict[str, str] = msgpack.unpackb(packed) if packed else {}
        return found

    @property
    def topic(self) -> str:
        """The topic it came from."""
        return self.batch.topic

    @property
    def group(self) -> str | None:
        """The group that has it, None for the default one."""
        return self.batch.group

    @property
    def shard(self) -> str:
        """The name of the shard that handed it out."""
        return self.batch.shard

    def _identity(self) -> tuple[str, str, int, int]:
        return self.batch.shard, self.batch.topic, self.lease, self.ref

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return (
            f"Message(id={self.id!r}, topic={self.topic!r}, attempts={self.attempts}, "
            f"deliver_at_ms={self.deliver_at_ms}, {len(self.body)} bytes)"
        )


def _listed(column: npt.NDArray[Any]) -> list[int]:
    values: list[int] = column.tolist()
    return values


def _ends(sizes: Int64Array) -> list[int]:
    return [0, *np.cumsum(sizes).tolist()]
