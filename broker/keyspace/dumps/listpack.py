"""Reads listpacks: small elements, stored one after another in one string.

total bytes, 4 | elements, 2 (65535: unknown) | entries | 0xFF
entry: form | data | size of form and data, readable backwards

0uuuuuuu whole 0..127        10llllll bytes up to 63        110iiiii whole, 13 bits
1110llll bytes up to 4095    F0 bytes, size in 4            F1..F4 whole of 16, 24, 32, 64 bits
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from delaylog.broker.keyspace.dumps.forms import BadDump

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
