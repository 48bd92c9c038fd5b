"""Loads a value from a dump of any Redis up to 7.0.

Streams and module values are refused, and values that a Redis before 7.0 encoded as a ziplist or a
zipmap.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from struct import unpack as unpack_struct
from typing import Final

from delaylog.broker.keyspace.dumps import forms
from delaylog.broker.keyspace.dumps.crc64 import crc64
from delaylog.broker.keyspace.dumps.forms import BadDump
from delaylog.broker.keyspace.dumps.listpack import unpack
from delaylog.broker.keyspace.dumps.lzf import unpacked
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.values.kinds import HashValue, ListValue, SetValue, Value
from delaylog.broker.keyspace.values.number_texts import to_float
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue

_TAIL_BYTES: Final = 10
_STRING_BYTES_MAX: Final = 512 * 1024 * 1024


def is_whole(payload: bytes) -> bool:
    """Whether the version is known and the checksum is right."""
    if len(payload) < _TAIL_BYTES:
        return False
    if int.from_bytes(payload[-10:-8], "little") > forms.VERSION:
        return False
    return crc64(memoryview(payload)[:-8]) == int.from_bytes(payload[-8:], "little")


def load(payload: bytes) -> Value:
    """Return the value of an intact dump. Raises BadDump."""
    reader = Reader(payload, len(payload) - _TAIL_BYTES)
    load_kind = _KINDS.get(reader.take(1)[0])
    if load_kind is None:
        raise BadDump("an unsupported type of value")
    value = load_kind(reader)
    if not isinstance(value, bytes) and not len(value):
        raise BadDump("a collection without elements")
    return value


class Reader:
    """Reads a payload in order."""

    def __init__(self, data: bytes, end: int) -> None:
        self._data = data
        self._at = 0
        self._end = end
        self._unpacked = 0
        """Read an LZF-compressed string."""

    @property
    def at_end(self) -> bool:
        """Whether the payload is read to its end."""
        return self._at == self._end

    def take(self, size: int) -> bytes:
        """Read the next bytes."""
        at = self._at
        if size > self._end - at:
            raise BadDump("cut off")
        self._at = at + size
        return self._data[at : at + size]

    def length(self) -> tuple[int, bool]:
        """Read a length; (encoding, True) for an encoded string."""
        first = self.take(1)[0]
        form = first >> 6
        if form == 0:
            return first, False
        if form == 1:
            return (first & 0x3F) << 8 | self.take(1)[0], False
        if form == 3:
            return first & 0x3F, True
        if first == 0x80:
            return int.from_bytes(self.take(4), "big"), False
        if first == 0x81:
            return int.from_bytes(self.take(8), "big"), False
        raise BadDump("an unknown form of length")

    def count(self) -> int:
        """Read a number of elements, each of which has at least one byte."""
        count, encoded = self.length()
        if encoded or count > self._end - self._at:
            raise BadDump("too many elements")
        return count

    def string(self) -> bytes:
        """Read a string in any encoding."""
        size, encoded = self.length()
        if not encoded:
            return self.take(size)
        if size in (forms.INT8, forms.INT16, forms.INT32):
            number = int.from_bytes(self.take(1 << size), "little", signed=True)
            return b"%d" % number
        if size == forms.LZF:
            packed, whole = self.count(), self.length()[0]
            self._unpacked += whole
            if self._unpacked > _STRING_BYTES_MAX:
                raise BadDump("strings that are too long when they are unpacked")
            return unpacked(self.take(packed), whole)
        raise BadDump("an unknown form of string")


def _list(reader: Reader) -> Value:
    return ListValue(reader.string() for _ in range(reader.count()))


def _quicklist(reader: Reader) -> Value:
    out = ListValue()
    for _ in range(reader.count()):
        form = reader.length()[0]
        text = reader.string()
        if form == forms.NODE_PLAIN:
            out.append(text)
        elif form == forms.NODE_PACKED:
            elements = unpack(text)
            if not elements:
                raise BadDump("a node without elements")
            out.extend(elements)
        else:
            raise BadDump("an unknown form of node")
    return out


def _set(reader: Reader) -> Value:
    count = reader.count()
    out = SetValue(reader.string() for _ in range(count))
    if len(out) != count:
        raise BadDump("a member twice")
    return out


def _intset(reader: Reader) -> Value:
    data = reader.string()
    if len(data) < 8:
        raise BadDump("an intset without a header")
    size, count = unpack_struct("<II", data[:8])
    if size not in (2, 4, 8) or len(data) != 8 + size * count:
        raise BadDump("the size of an intset is wrong")
    numbers = [
        int.from_bytes(data[at : at + size], "little", signed=True)
        for at in range(8, len(data), size)
    ]
    if any(low >= high for low, high in pairwise(numbers)):
        raise BadDump("an intset without order")
    return SetValue(b"%d" % number for number in numbers)


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    if len(flat) % 2:
        raise BadDump("an odd number of elements in pairs")
    return list(zip(flat[::2], flat[1::2], strict=True))


def _hash_of(pairs: list[tuple[bytes, bytes]]) -> Value:
    out = HashValue(pairs)
    if len(out) != len(pairs):
        raise BadDump("a field twice")
    return out


def _hash(reader: Reader) -> Value:
    return _hash_of([(reader.string(), reader.string()) for _ in range(reader.count())])


def _hash_listpack(reader: Reader) -> Value:
    return _hash_of(_pairs(unpack(reader.string())))


def _zset_of(pairs: list[tuple[bytes, float]]) -> Value:
    out = SortedSetValue()
    for member, score in pairs:
        if score != score:
            raise BadDump("a score that is no number")
        if not out.put(member, score):
            raise BadDump("a member twice")
    return out


def _zset(reader: Reader) -> Value:
    count = reader.count()
    return _zset_of(
        [(reader.string(), unpack_struct("<d", reader.take(8))[0]) for _ in range(count)]
    )


def _zset_text(reader: Reader) -> Value:
    return _zset_of([(reader.string(), _text_score(reader)) for _ in range(reader.count())])


def _text_score(reader: Reader) -> float:
    size = reader.take(1)[0]
    special = {255: "-inf", 254: "inf", 253: "nan"}.get(size)
    return float(special) if special else _score(reader.take(size))


def _score(text: bytes) -> float:
    try:
        return to_float(text)
    except (CommandError, OverflowError):
        raise BadDump("a score that is no number") from None


def _zset_listpack(reader: Reader) -> Value:
    return _zset_of([(member, _score(score)) for member, score in _pairs(unpack(reader.string()))])


_KINDS: Final[dict[int, Callable[[Reader], Value]]] = {
    forms.STRING: Reader.string,
    forms.LIST: _list,
    forms.SET: _set,
    forms.ZSET_TEXT: _zset_text,
    forms.HASH: _hash,
    forms.ZSET: _zset,
    forms.SET_INTSET: _intset,
    forms.HASH_LISTPACK: _hash_listpack,
    forms.ZSET_LISTPACK: _zset_listpack,
    forms.LIST_QUICKLIST: _quicklist,
}
