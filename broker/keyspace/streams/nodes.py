"""A node of a stream: up to 100 consecutive entries, which Redis packs into one listpack.

Entries are not packed here, but a node tracks the size of its listpack in Redis. This size decides
when the next node begins, and approximate trimming removes whole nodes. Deleted entries count.
"""

from __future__ import annotations

import re
from typing import Any, Final

from delaylog.broker.keyspace.streams.ids import SEQUENCE_BITS, SEQUENCE_MAX

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
