"""A message's own backoff, which overrides its topic's: 37 bytes in front of the headers.

A row has no room for a backoff and few messages have one, so it is part of the record, and
`headers_size` includes it. It is msgpack: an array of four numbers in their longest forms. Headers
are a msgpack map, so the first byte tells whether there is a backoff::

    0   u8   0x94, an array of 4
    1   u8   0xD3    2  i64  first_ms
    10  u8   0xD3   11  i64  max_ms
    19  u8   0xCB   20  f64  factor
    28  u8   0xCB   29  f64  jitter      all big-endian, -1 = not given: the topic's value
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

OWN_BACKOFF_SIZE: Final = 37
_ONE: Final = struct.Struct(">BBqBqBdBd")
assert _ONE.size == OWN_BACKOFF_SIZE
PARTS: Final = ("first_ms", "max_ms", "factor", "jitter")
NOT_SAID: Final = -1
ARRAY: Final = 0x94
KINDS: Final = (ARRAY, 0xD3, 0xD3, 0xCB, 0xCB)
"""The bytes that are the same in every backoff."""


def encode_own_backoff(said: Mapping[str, Any]) -> bytes:
    """The bytes of a message's backoff; `said` = the parts that the message sets."""
    first_ms, max_ms, factor, jitter = (said.get(name, NOT_SAID) for name in PARTS)
    return _ONE.pack(ARRAY, 0xD3, first_ms, 0xD3, max_ms, 0xCB, factor, 0xCB, jitter)


def split_own_backoff(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """(the parts of a message's backoff, its packed headers). Raises ValueError if malformed."""
    if not raw or raw[0] != ARRAY:
        return {}, raw
    if len(raw) < OWN_BACKOFF_SIZE:
        raise ValueError(f"a backoff has {OWN_BACKOFF_SIZE} bytes, not {len(raw)}")
    array, *rest = _ONE.unpack_from(raw)
    if (array, *rest[::2]) != KINDS:
        raise ValueError("a backoff is an array of two int 64 and two float 64")
    named = zip(PARTS, rest[1::2], strict=True)
    return {name: value for name, value in named if value != NOT_SAID}, raw[OWN_BACKOFF_SIZE:]
