"""Reads the payloads of RESTORE: one value, encoded as in the snapshots of any Redis up to 7.0.

    type, 1 byte | value | version, 2 bytes, lowest first | CRC-64 of all before, lowest first

Streams and module values are refused, and values that a Redis before 7.0 encoded as a ziplist or a
zipmap. A listpack has small elements, stored one after another in one string:

    total bytes, 4 | elements, 2 (65535: unknown) | entries | 0xFF
    entry: form | data | size of form and data, readable backwards

    0uuuuuuu whole 0..127        10llllll bytes up to 63        110iiiii whole, 13 bits
    1110llll bytes up to 4095    F0 bytes, size in 4            F1..F4 whole of 16, 24, 32, 64 bits

Redis compresses strings of more than 20 bytes with LZF:

    000lllll                        l + 1 bytes as they are
    lllooooo oooooooo               l + 2 bytes again, from o + 1 bytes back
    111ooooo llllllll oooooooo      l + 9 bytes again

The checksum is the CRC-64 of Jones, reflected, with initial value 0. Large data is split into rows
of equal length, and numpy computes the CRCs of all rows at once. Then the rows are combined: tables
give the effect of a row of zero bytes on the CRC of what precedes it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from struct import Struct
from struct import unpack as unpack_struct
from typing import Any, Final

import numpy as np

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.keyspace import HashValue, ListValue, SetValue, Value
from delaylog.broker.keyspace.values.number_texts import to_float
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue

# ------------------------------------------------------------------------ numbers of the format

VERSION: Final = 10
"""The version that Redis 7.0 writes; newer ones are not read."""

STRING: Final = 0
LIST: Final = 1
SET: Final = 2
ZSET_TEXT: Final = 3
HASH: Final = 4
ZSET: Final = 5
SET_INTSET: Final = 11
HASH_LISTPACK: Final = 16
ZSET_LISTPACK: Final = 17
LIST_QUICKLIST: Final = 18

NODE_PLAIN: Final = 1
NODE_PACKED: Final = 2

INT8, INT16, INT32, LZF = range(4)


class BadDump(Exception):
    """The payload is not a value that is supported here."""


# ------------------------------------------------------------------------------------- checksum

_POLYNOMIAL: Final = 0x95AC9329AC4BC9B5
_FEW_BYTES: Final = 16 * 1024
_ROW_BYTES: Final = 512


def _table() -> list[int]:
    out = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        out.append(crc)
    return out


_TABLE: Final = _table()
_TABLE_ARRAY: Final = np.array(_TABLE, np.uint64)


def crc64(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Return the CRC of `data`, appended to data whose CRC is `crc`."""
    rows = len(data) // _ROW_BYTES if len(data) > _FEW_BYTES else 0
    if rows:
        sums = _sums_of_rows(np.frombuffer(data, np.uint8, rows * _ROW_BYTES).reshape(rows, -1))
        carry = _over_zeros(_ROW_BYTES)
        for row in sums.tolist():
            carried = 0
            for index in range(8):
                carried ^= carry[index][crc >> 8 * index & 0xFF]
            crc = carried ^ row
    table = _TABLE
    for byte in memoryview(data)[rows * _ROW_BYTES :]:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc


def _sums_of_rows(rows: Any) -> Any:
    sums = np.zeros(len(rows), np.uint64)
    eight, low = np.uint64(8), np.uint64(0xFF)
    for column in np.ascontiguousarray(rows.T):
        sums = _TABLE_ARRAY[((sums ^ column) & low).astype(np.intp)] ^ sums >> eight
    return sums


def _over_zeros(count: int) -> list[list[int]]:
    """Return tables, one for each byte of a CRC, that append `count` zero bytes to it."""
    found = _CARRIES.get(count)
    if found is not None:
        return found
    bits = []
    for bit in range(64):
        crc = 1 << bit
        for _ in range(count):
            crc = _TABLE[crc & 0xFF] ^ crc >> 8
        bits.append(crc)
    tables = []
    for index in range(8):
        table = [0] * 256
        for byte in range(1, 256):
            lowest = byte & -byte
            table[byte] = table[byte ^ lowest] ^ bits[index * 8 + lowest.bit_length() - 1]
        tables.append(table)
    _CARRIES[count] = tables
    return tables


_CARRIES: Final[dict[int, list[list[int]]]] = {}


# ------------------------------------------------------------------------------------ listpacks

_HEADER: Final = Struct("<IH")
assert _HEADER.size == 6
_END: Final = 0xFF
_MANY: Final = 0xFFFF
_WHOLE_BYTES: Final = {0xF1: 2, 0xF2: 3, 0xF3: 4, 0xF4: 8}


def unpack(data: bytes) -> list[bytes]:
    """Return the elements of a listpack. Raises BadDump."""
    if len(data) < _HEADER.size + 1:
        raise BadDump("a listpack without a header")
    total, count = _HEADER.unpack_from(data)
    if total != len(data) or data[-1] != _END:
        raise BadDump("the size of a listpack is wrong")
    out: list[bytes] = []
    at, end = _HEADER.size, total - 1
    while at < end:
        element, size = _element(data, at, end)
        back = _size_backwards(size)
        if data[at + size : at + size + len(back)] != back or at + size + len(back) > end:
            raise BadDump("the size of an entry is wrong")
        out.append(element)
        at += size + len(back)
    if count not in (len(out), _MANY):
        raise BadDump("the number of entries is wrong")
    return out


def _size_backwards(size: int) -> bytes:
    """Encode a size, 7 bits a byte, high bits first; bit 7 is set in all bytes but the first."""
    out = bytearray((size & 127,))
    while size := size >> 7:
        out[-1] |= 128
        out.append(size & 127)
    out.reverse()
    return bytes(out)


def _element(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Return the value of an entry, and the size of its header and data."""
    form = data[at]
    if form < 0x80:
        return b"%d" % form, 1
    if form < 0xC0:
        start, size = at + 1, form & 0x3F
    elif form < 0xE0:
        number = (form & 0x1F) << 8 | data[at + 1]
        return b"%d" % (number - 0x2000 if number & 0x1000 else number), 2
    elif form < 0xF0:
        start, size = at + 2, (form & 0x0F) << 8 | data[at + 1]
    elif form == 0xF0:
        start, size = at + 5, int.from_bytes(data[at + 1 : at + 5], "little")
    elif form in _WHOLE_BYTES:
        size = _WHOLE_BYTES[form]
        number = int.from_bytes(data[at + 1 : at + 1 + size], "little", signed=True)
        return b"%d" % number, 1 + size
    else:
        raise BadDump("an unknown form of entry")
    if start + size > end:
        raise BadDump("an entry is cut off")
    return data[start : start + size], start - at + size


# ------------------------------------------------------------------------------------------ LZF


def unpacked(data: bytes, size: int) -> bytes:
    """Decompress to `size` bytes. Raises BadDump."""
    out = bytearray()
    at, end = 0, len(data)
    try:
        while at < end:
            control = data[at]
            at += 1
            if control < 32:
                if at + control + 1 > end:
                    raise BadDump("a run of bytes is cut off")
                out += data[at : at + control + 1]
                at += control + 1
            else:
                length = control >> 5
                if length == 7:
                    length += data[at]
                    at += 1
                back = ((control & 31) << 8 | data[at]) + 1
                at += 1
                length += 2
                start = len(out) - back
                if start < 0:
                    raise BadDump("a repetition begins before the start")
                piece = out[start : start + length]
                # The repeated range may overlap its own output.
                while len(piece) < length:
                    piece += piece[: length - len(piece)]
                out += piece
            if len(out) > size:
                raise BadDump("more bytes than the given size")
    except IndexError:
        raise BadDump("a repetition is cut off") from None
    if len(out) != size:
        raise BadDump("fewer bytes than the given size")
    return bytes(out)


# --------------------------------------------------------------------------------------- values

_TAIL_BYTES: Final = 10
_STRING_BYTES_MAX: Final = 512 * 1024 * 1024


def is_whole(payload: bytes) -> bool:
    """Whether the version is known and the checksum is right."""
    if len(payload) < _TAIL_BYTES:
        return False
    if int.from_bytes(payload[-10:-8], "little") > VERSION:
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
        if size in (INT8, INT16, INT32):
            number = int.from_bytes(self.take(1 << size), "little", signed=True)
            return b"%d" % number
        if size == LZF:
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
        if form == NODE_PLAIN:
            out.append(text)
        elif form == NODE_PACKED:
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
    STRING: Reader.string,
    LIST: _list,
    SET: _set,
    ZSET_TEXT: _zset_text,
    HASH: _hash,
    ZSET: _zset,
    SET_INTSET: _intset,
    HASH_LISTPACK: _hash_listpack,
    ZSET_LISTPACK: _zset_listpack,
    LIST_QUICKLIST: _quicklist,
}
