"""A stream: entries by id, and the groups that read them.

An id is `ms-sequence`, stored as one integer, so that ids compare directly: the next id is the next
integer. Texts of ids are parsed as leniently as by C's strtoull.

Entries are in nodes of up to 100 consecutive ones, which Redis packs into one listpack. They are
not packed here, but a node tracks the size of its listpack in Redis. This size decides when the
next node begins, and approximate trimming removes whole nodes. Deleted entries count. A binary
search over the nodes' first ids and then within a node finds an entry. Appending changes the last
node; trimming removes the first nodes, which moves one pointer for each remaining node. A stream
without entries is kept, because its ids must not repeat.

A group has its last delivered id, consumers, and pending entries.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from sortedcontainers import SortedDict

from delaylog.broker.keyspace.errors import CommandError, c_text
from delaylog.broker.keyspace.values.number_texts import INT64_MAX

# ---------------------------------------------------------------------------------------- order

Value = TypeVar("Value")


class IdOrder(Generic[Value]):
    """Values by id."""

    def __init__(self) -> None:
        self._values: SortedDict[int, Value] = SortedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, number: int) -> Value | None:
        """Return the value of an id, or None."""
        value: Value | None = self._values.get(number)
        return value

    def put(self, number: int, value: Value) -> None:
        """Set the value of an id."""
        self._values[number] = value

    def remove(self, number: int) -> Value | None:
        """Remove an id; returns its value, or None."""
        value: Value | None = self._values.pop(number, None)
        return value

    def starting(self, number: int = 0) -> Iterator[tuple[int, Value]]:
        """Iterate over the ids from `number` on; nothing may be put or removed meanwhile."""
        value = self._values
        return ((found, value[found]) for found in value.irange(number))

    def first(self) -> int:
        """The smallest id; there must be one."""
        return int(self._values.peekitem(0)[0])

    def last(self) -> int:
        """The largest id; there must be one."""
        return int(self._values.peekitem()[0])


# --------------------------------------------------------------------------------------- groups

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
    """Number of deliveries, at most INT64_MAX: an effect with more would be refused."""


@dataclass(slots=True, eq=False)
class Group:
    """A group of consumers; each entry goes to one of them."""

    last_id: int
    """The id of the last delivered entry."""
    entries_read: int
    """At most INT64_MAX, or UNKNOWN."""
    consumers: dict[bytes, Consumer] = field(default_factory=dict)
    pending: IdOrder[Pending] = field(default_factory=IdOrder)
    """Pending entries of all consumers; each consumer also has its own."""

    def deliver(self, number: int, consumer: Consumer, now_ms: int, count: int) -> None:
        """Assign a pending entry to a consumer."""
        count = min(count, INT64_MAX)
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
        group = cls(int.from_bytes(last_id, "big"), min(entries_read, INT64_MAX))
        readers = [Consumer(name, seen_ms) for name, seen_ms in consumers]
        group.consumers = {consumer.name: consumer for consumer in readers}
        for number, index, delivered_ms, count in pending:
            group.deliver(int.from_bytes(number, "big"), readers[index], delivered_ms, count)
        return group


# ------------------------------------------------------------------------------------------ ids

SEQUENCE_BITS: Final = 64
SEQUENCE_MAX: Final = 2**64 - 1
ID_MAX: Final = 2**128 - 1
INVALID: Final = b"ERR Invalid stream ID specified as stream command argument"
_BAD_START: Final = b"ERR invalid start ID for the interval"
_BAD_END: Final = b"ERR invalid end ID for the interval"
_TEXT_BYTES_MAX: Final = 127
_PLAIN: Final = re.compile(rb"([0-9]{1,19})(?:-([0-9]{1,19}))?").fullmatch
_LOOSE: Final = re.compile(rb"[ \t\n\v\f\r]*([+-]?)([0-9]+)").fullmatch
_NEGATIVE: Final = re.compile(rb"-[1-9][0-9]*").fullmatch


def id_text(number: int) -> bytes:
    """Format an id for clients."""
    return b"%d-%d" % (number >> SEQUENCE_BITS, number & SEQUENCE_MAX)


def _unsigned(text: bytes) -> int:
    """Parse an unsigned 64-bit number. Raises CommandError."""
    match = _LOOSE(text)
    if match is None:
        raise CommandError(INVALID)
    value = int(match[2])
    if value > SEQUENCE_MAX:
        raise CommandError(INVALID)
    if match[1] == b"-":
        # A well-formed negative number is refused. In other texts with a minus sign, strtoull makes
        # the number wrap around.
        if _NEGATIVE(text) and value <= 2**63:
            raise CommandError(INVALID)
        value = -value % 2**64
    return value


def parse_id(text: bytes, missing: int = 0, *, strict: bool = True) -> int:
    """Parse an id; `missing` is the sequence if there is none. Raises CommandError.

    Unless `strict`, `-` is the smallest and `+` the largest id.
    """
    match = _PLAIN(text)
    if match is not None:
        ms, sequence = match.groups()
        return int(ms) << SEQUENCE_BITS | (missing if sequence is None else int(sequence))
    if len(text) > _TEXT_BYTES_MAX:
        raise CommandError(INVALID)
    text = c_text(text)
    if text in (b"-", b"+"):
        if strict:
            raise CommandError(INVALID)
        return 0 if text == b"-" else ID_MAX
    ms, dash, sequence = text.partition(b"-")
    high = _unsigned(ms)
    return high << SEQUENCE_BITS | (_unsigned(sequence) if dash else missing)


def parse_new_id(text: bytes) -> tuple[int, bool]:
    """Parse the id of a new entry; returns it, and whether its sequence is given (not `5-*`).

    Raises CommandError.
    """
    told = c_text(text)
    if len(text) <= _TEXT_BYTES_MAX and told[-2:] == b"-*":
        ms = told[:-2]
        if b"-" not in ms:
            return _unsigned(ms) << SEQUENCE_BITS, False
    return parse_id(text), True


def parse_start(text: bytes) -> int:
    """Parse the first id of an interval; `(` excludes it. Raises CommandError."""
    if len(text) > 1 and text[:1] == b"(":
        number = parse_id(text[1:])
        if number == ID_MAX:
            raise CommandError(_BAD_START)
        return number + 1
    return parse_id(text, strict=False)


def parse_end(text: bytes) -> int:
    """Parse the last id of an interval; `(` excludes it. Raises CommandError."""
    if len(text) > 1 and text[:1] == b"(":
        number = parse_id(text[1:], SEQUENCE_MAX)
        if number == 0:
            raise CommandError(_BAD_END)
        return number - 1
    return parse_id(text, SEQUENCE_MAX, strict=False)


# ---------------------------------------------------------------------------------------- nodes

NODE_BYTES_MAX: Final = 4096
NODE_ENTRIES_MAX: Final = 100

Fields = tuple[bytes, ...]
"""Field, value, field, value."""

_INTEGER: Final = re.compile(rb"-?[1-9][0-9]{0,18}|0").fullmatch
_EMPTY_BYTES: Final = 7
"""The head and the end mark of a listpack."""
_SMALL_BYTES: Final = 2
"""The bytes of a number up to 127."""


def _number_bytes(value: int) -> int:
    if 0 <= value <= 127:
        return _SMALL_BYTES
    if value < 0:
        value = -1 - value
    bits = value.bit_length()
    for most, size in ((12, 3), (15, 4), (23, 5), (31, 6)):
        if bits <= most:
            return size
    return 10


def _text_bytes(text: bytes) -> int:
    size = len(text)
    if size <= 20 and _INTEGER(text) and -(2**63) <= (value := int(text)) < 2**63:
        return _number_bytes(value)
    if size < 64:
        return size + 2
    size += 2 if size < 4096 else 5
    # The entry's length is repeated at its end, for reading backwards, with seven bits a byte.
    for most, more in ((127, 1), (16_382, 2), (2_097_150, 3), (268_435_454, 4)):
        if size <= most:
            return size + more
    return size + 5


def _signed(value: int) -> int:
    value &= SEQUENCE_MAX
    return value - 2**64 if value >= 2**63 else value


class StreamNode:
    """Present entries by id, and the listpack size of all entries ever added."""

    __slots__ = ("first", "ids", "items", "last", "names", "size", "written")

    def __init__(self, number: int, fields: Fields) -> None:
        self.first = number
        """The id of the first entry, deleted or not; nodes are ordered by it."""
        self.last = number
        """The id of the last entry, deleted or not."""
        self.names = fields[::2]
        """The master fields, which entries with the same fields do not repeat."""
        self.ids: list[int] = []
        self.items: list[Fields] = []
        self.written = 0
        """Number of entries, also deleted ones."""
        self.size = (
            _EMPTY_BYTES
            + 3 * _SMALL_BYTES
            + _number_bytes(len(self.names))
            + sum(map(_text_bytes, self.names))
        )
        """Size of the listpack in bytes."""

    def has_room(self, bytes_more: int) -> bool:
        """Whether an entry of this size fits."""
        return self.size + bytes_more < NODE_BYTES_MAX and self.written < NODE_ENTRIES_MAX

    def append(self, number: int, fields: Fields) -> None:
        """Append an entry."""
        self.ids.append(number)
        self.items.append(fields)
        self.written += 1
        self.last = number
        names = fields[::2]
        same = names == self.names
        size = (
            _SMALL_BYTES
            + _number_bytes(_signed((number >> SEQUENCE_BITS) - (self.first >> SEQUENCE_BITS)))
            + _number_bytes(_signed((number & SEQUENCE_MAX) - (self.first & SEQUENCE_MAX)))
        )
        count = len(names)
        if same:
            size += sum(map(_text_bytes, fields[1::2])) + _number_bytes(count + 3)
        else:
            size += sum(map(_text_bytes, fields)) + _number_bytes(count)
            size += _number_bytes(2 * count + 4)
        self.size += size

    def plain(self) -> list[Any]:
        """Return the node as numbers, bytes and lists."""
        return [
            self.first.to_bytes(16, "big"),
            self.last.to_bytes(16, "big"),
            list(self.names),
            self.written,
            self.size,
            b"".join(number.to_bytes(16, "big") for number in self.ids),
            [list(fields) for fields in self.items],
        ]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> StreamNode:
        """Rebuild a node from `plain`."""
        node = cls.__new__(cls)
        first, last, names, node.written, node.size, ids, items = plain
        node.first, node.last = int.from_bytes(first, "big"), int.from_bytes(last, "big")
        node.names = tuple(names)
        node.ids = [int.from_bytes(ids[at : at + 16], "big") for at in range(0, len(ids), 16)]
        node.items = [tuple(fields) for fields in items]
        return node


# ----------------------------------------------------------------------------------- the stream


@dataclass(slots=True, eq=False)
class StreamValue:
    """Entries of fields, ordered by (ms, sequence)."""

    nodes: list[StreamNode] = field(default_factory=list)
    _firsts: list[int] = field(default_factory=list)
    """The first ids of the nodes."""
    length: int = 0
    last_id: int = 0
    """The largest id so far, also of deleted entries."""
    first_id: int = 0
    """The id of the first entry; 0 = there is none."""
    max_deleted_id: int = 0
    entries_added: int = 0
    """The number of entries ever added."""
    groups: dict[bytes, Group] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.length

    # ------------------------------------------------------------------ entries

    def append(self, number: int, fields: Fields) -> None:
        """Append an entry; its id must be larger than all earlier ones."""
        assert number > self.last_id
        nodes = self.nodes
        if not nodes or not nodes[-1].has_room(sum(map(len, fields))):
            nodes.append(StreamNode(number, fields))
            self._firsts.append(number)
        nodes[-1].append(number, fields)
        self.entries_added += 1
        self.last_id = number
        self.length += 1
        if self.length == 1:
            self.first_id = number

    def _node_at(self, number: int) -> int:
        """Return the index of the node whose range includes an id; -1 = it is before all nodes."""
        return bisect_right(self._firsts, number) - 1

    def find(self, number: int) -> Fields | None:
        """Return the fields of an entry, or None."""
        at = self._node_at(number)
        if at < 0:
            return None
        node = self.nodes[at]
        index = bisect_left(node.ids, number)
        if index < len(node.ids) and node.ids[index] == number:
            return node.items[index]
        return None

    def entries(self, start: int = 0, end: int = ID_MAX) -> Iterator[tuple[int, Fields]]:
        """Iterate over the entries of an id range; the stream must not change meanwhile."""
        nodes = self.nodes
        for at in range(max(self._node_at(start), 0), len(nodes)):
            node = nodes[at]
            ids = node.ids
            for index in range(bisect_left(ids, start) if node.first < start else 0, len(ids)):
                if ids[index] > end:
                    return
                yield ids[index], node.items[index]

    def entries_back(self, start: int = 0, end: int = ID_MAX) -> Iterator[tuple[int, Fields]]:
        """Iterate in descending order."""
        nodes = self.nodes
        for at in range(self._node_at(end), -1, -1):
            node = nodes[at]
            ids = node.ids
            for index in range(bisect_right(ids, end) - 1, -1, -1):
                if ids[index] < start:
                    return
                yield ids[index], node.items[index]

    def last_present(self) -> int:
        """Return the id of the last entry; 0 = there is none."""
        return next(self.entries_back(), (0,))[0]

    def delete(self, number: int) -> bool:
        """Delete an entry; returns whether it existed. Call `note_first` afterwards."""
        at = self._node_at(number)
        if at < 0:
            return False
        node = self.nodes[at]
        index = bisect_left(node.ids, number)
        if index == len(node.ids) or node.ids[index] != number:
            return False
        del node.ids[index], node.items[index]
        if not node.ids:
            del self.nodes[at], self._firsts[at]
        self.length -= 1
        self.max_deleted_id = max(self.max_deleted_id, number)
        return True

    def note_first(self) -> None:
        """Update the first id after deletions."""
        self.first_id = next(self.entries(), (0,))[0]

    def pop(self) -> int:
        """Free the last node of a removed stream; returns the number of its entries."""
        count = len(self.nodes.pop().ids)
        self.length -= count
        return count

    # ------------------------------------------------------------------ trimming

    def trim_to_length(self, length: int, limit: int = 0, *, whole_nodes: bool = False) -> int:
        """Remove the first entries until `length` are left; returns their number.

        At most `limit` entries (0 = any number) are removed. With `whole_nodes`, a node is removed
        as a whole or not at all.
        """
        excess = self.length - length
        gone = nodes_gone = 0
        for node in self.nodes:
            if gone >= excess or (limit and gone + len(node.ids) > limit):
                break
            if gone + len(node.ids) > excess:
                if not whole_nodes:
                    part = excess - gone
                    del node.ids[:part], node.items[:part]
                    gone += part
                break
            gone += len(node.ids)
            nodes_gone += 1
        return self._trimmed(gone, nodes_gone)

    def trim_to_id(self, number: int, limit: int = 0, *, whole_nodes: bool = False) -> int:
        """Remove the entries before an id; see `trim_to_length`."""
        gone = nodes_gone = 0
        for node in self.nodes:
            if limit and gone + len(node.ids) > limit:
                break
            if node.last >= number:
                if not whole_nodes:
                    part = bisect_left(node.ids, number)
                    del node.ids[:part], node.items[:part]
                    gone += part
                break
            gone += len(node.ids)
            nodes_gone += 1
        return self._trimmed(gone, nodes_gone)

    def _trimmed(self, gone: int, nodes_gone: int) -> int:
        if nodes_gone:
            del self.nodes[:nodes_gone], self._firsts[:nodes_gone]
        if gone:
            self.length -= gone
            self.note_first()
        return gone

    # ------------------------------------------------------------------ how far groups are

    def has_gaps_from(self, number: int) -> bool:
        """Whether entries may have been deleted between an id and the end."""
        if not self.length or not self.max_deleted_id or self.first_id > self.max_deleted_id:
            return False
        return number <= self.max_deleted_id

    def count_until(self, number: int) -> int:
        """Return the number of entries added up to an id, or UNKNOWN."""
        if not self.entries_added:
            return 0
        if number == self.last_id or (not self.length and number < self.last_id):
            return self.entries_added
        if number > self.last_id:
            return UNKNOWN
        if not self.max_deleted_id or self.max_deleted_id < self.first_id:
            if number < self.first_id:
                return self.entries_added - self.length
            if number == self.first_id:
                return self.entries_added - self.length + 1
        return UNKNOWN

    def lag(self, group: Group) -> int | None:
        """Return the lag of a group; None = unknown."""
        if not self.entries_added:
            return 0
        if group.entries_read != UNKNOWN and not self.has_gaps_from(group.last_id):
            return self.entries_added - group.entries_read
        read = self.count_until(group.last_id)
        return None if read == UNKNOWN else self.entries_added - read

    def advance(self, group: Group, number: int) -> None:
        """Advance a group to this entry, which is after its last one."""
        if group.entries_read != UNKNOWN and not self.has_gaps_from(number):
            group.entries_read = min(group.entries_read + 1, INT64_MAX)
        elif self.entries_added:
            group.entries_read = self.count_until(number)
        group.last_id = number

    # ------------------------------------------------------------------ whole

    def plain(self) -> list[Any]:
        """Return the stream as numbers, bytes and lists, for snapshots."""
        return [
            [
                number.to_bytes(16, "big")
                for number in (self.first_id, self.last_id, self.max_deleted_id)
            ],
            self.entries_added,
            [node.plain() for node in self.nodes],
            [[name, group.plain()] for name, group in self.groups.items()],
        ]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> StreamValue:
        """Rebuild a stream from `plain`."""
        ids, entries_added, nodes, groups = plain
        value = cls()
        value.first_id, value.last_id, value.max_deleted_id = (
            int.from_bytes(number, "big") for number in ids
        )
        value.entries_added = entries_added
        value.nodes = [StreamNode.from_plain(node) for node in nodes]
        value._firsts = [node.first for node in value.nodes]
        value.length = sum(len(node.ids) for node in value.nodes)
        value.groups = {name: Group.from_plain(group) for name, group in groups}
        return value
