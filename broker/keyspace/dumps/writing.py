"""Makes a dump of a value.

Strings are not packed by LZF: Redis reads both, and packs only to save room.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack as pack_struct
from typing import Final

from delaylog.broker.keyspace.dumps import listpack
from delaylog.broker.keyspace.dumps.crc64 import crc64
from delaylog.broker.keyspace.dumps.forms import (
    ENCODED,
    HASH,
    HASH_LISTPACK,
    INT8,
    INT16,
    INT32,
    LIST_QUICKLIST,
    NODE_PACKED,
    SET,
    SET_INTSET,
    STRING,
    VERSION,
    ZSET,
    ZSET_LISTPACK,
    BadDump,
)
from delaylog.broker.keyspace.number_texts import is_int, score_text
from delaylog.broker.keyspace.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values import HashValue, ListValue, SetValue, Value

_NODE_BYTES_MAX: Final = 8_192
_WHOLE_SCORE_MAX: Final = 2**62


def dump(value: Value) -> bytes:
    """The dump of a value. Raises BadDump for a stream."""
    kind, body = _body(value)
    return sealed(bytes((kind,)) + body)


def sealed(content: bytes) -> bytes:
    """With the version and a sum behind it."""
    payload = content + VERSION.to_bytes(2, "little")
    return payload + crc64(payload).to_bytes(8, "little")


def _body(value: Value) -> tuple[int, bytes]:
    if isinstance(value, bytes | bytearray):
        return STRING, string(bytes(value))
    if isinstance(value, ListValue):
        return LIST_QUICKLIST, _list(value)
    if isinstance(value, SetValue):
        if value.encoding == b"intset":
            return SET_INTSET, string(_intset(sorted(map(int, value))))
        return SET, _strings(len(value), value)
    if isinstance(value, HashValue):
        flat = [text for pair in value.items() for text in pair]
        if value.large:
            return HASH, _strings(len(value), flat)
        return HASH_LISTPACK, string(listpack.pack(flat))
    if isinstance(value, SortedSetValue):
        return _sorted_set(value)
    raise BadDump("streams are not dumped")


def _length(size: int) -> bytes:
    """A length: 6, 14, 32 or 64 bits."""
    if size < 64:
        return bytes((size,))
    if size < 16_384:
        return (0x4000 | size).to_bytes(2, "big")
    if size < 2**32:
        return b"\x80" + size.to_bytes(4, "big")
    return b"\x81" + size.to_bytes(8, "big")


def string(text: bytes) -> bytes:
    if len(text) <= 11 and is_int(text):
        number = int(text)
        for form, size in ((INT8, 1), (INT16, 2), (INT32, 4)):
            if -(1 << size * 8 - 1) <= number < 1 << size * 8 - 1:
                return bytes((ENCODED | form,)) + number.to_bytes(size, "little", signed=True)
    return _length(len(text)) + text


def _strings(count: int, texts: Iterable[bytes]) -> bytes:
    return _length(count) + b"".join(map(string, texts))


def _list(value: ListValue) -> bytes:
    nodes: list[list[bytes]] = []
    size = _NODE_BYTES_MAX
    for element in value:
        # Redis reckons with so much for what goes with an element.
        if size + len(element) + 8 > _NODE_BYTES_MAX or not nodes:
            nodes.append([])
            size = listpack.EMPTY_BYTES
        entry = listpack.entry(element)
        nodes[-1].append(entry)
        size += len(entry)
    out = [_length(len(nodes))]
    for node in nodes:
        out.append(_length(NODE_PACKED))
        out.append(string(listpack.join(node)))
    return b"".join(out)


def _intset(numbers: list[int]) -> bytes:
    """size of a number, 4 | count, 4 | the numbers in order"""
    size = next(
        size
        for size in (2, 4, 8)
        if all(-(1 << size * 8 - 1) <= number < 1 << size * 8 - 1 for number in numbers)
    )
    head = pack_struct("<II", size, len(numbers))
    return head + b"".join(number.to_bytes(size, "little", signed=True) for number in numbers)


def _sorted_set(value: SortedSetValue) -> tuple[int, bytes]:
    if value.large:
        # From the highest: Redis builds its skip list fastest so.
        pairs = (
            string(member) + pack_struct("<d", score)
            for score, member in reversed(list(value.order))
        )
        return ZSET, _length(len(value)) + b"".join(pairs)
    flat = [text for score, member in value.order for text in (member, _score(score))]
    return ZSET_LISTPACK, string(listpack.pack(flat))


def _score(score: float) -> bytes:
    """Whole numbers are held as such, also those too large for plain digits elsewhere."""
    if abs(score) <= _WHOLE_SCORE_MAX and score == int(score):
        return b"%d" % score
    return score_text(score)
