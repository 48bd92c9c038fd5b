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

import numpy as np
import numpy.typing as npt

from delaylog.storage.layout import Int64Array

OWN_BACKOFF: Final = np.dtype(
    [
        ("array", "u1"),
        ("first_kind", "u1"),
        ("first_ms", ">i8"),
        ("max_kind", "u1"),
        ("max_ms", ">i8"),
        ("factor_kind", "u1"),
        ("factor", ">f8"),
        ("jitter_kind", "u1"),
        ("jitter", ">f8"),
    ]
)
OWN_BACKOFF_SIZE: Final = 37
assert OWN_BACKOFF.itemsize == OWN_BACKOFF_SIZE
_ONE: Final = struct.Struct(">BBqBqBdBd")
assert _ONE.size == OWN_BACKOFF_SIZE
PARTS: Final = ("first_ms", "max_ms", "factor", "jitter")
NOT_SAID: Final = -1
_ARRAY: Final = 0x94
_KINDS: Final = {
    "array": _ARRAY,
    "first_kind": 0xD3,
    "max_kind": 0xD3,
    "factor_kind": 0xCB,
    "jitter_kind": 0xCB,
}


def own_backoff_entries(n: int, said: Mapping[str, Any]) -> npt.NDArray[np.void]:
    """n backoffs. Each part is one value for all or an array of n, with NOT_SAID where absent."""
    entries = np.zeros(n, OWN_BACKOFF)
    for name, kind in _KINDS.items():
        entries[name] = kind
    for name in PARTS:
        entries[name] = said.get(name, NOT_SAID)
    return entries


def encode_own_backoff(said: Mapping[str, Any]) -> bytes:
    """The bytes of a message's backoff; `said` = the parts that the message sets."""
    first_ms, max_ms, factor, jitter = (said.get(name, NOT_SAID) for name in PARTS)
    return _ONE.pack(_ARRAY, 0xD3, first_ms, 0xD3, max_ms, 0xCB, factor, 0xCB, jitter)


def split_own_backoff(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """(the parts of a message's backoff, its packed headers). Raises ValueError if malformed."""
    if not raw or raw[0] != _ARRAY:
        return {}, raw
    entry = np.frombuffer(raw, OWN_BACKOFF, 1)[0]
    if any(entry[name] != kind for name, kind in _KINDS.items()):
        raise ValueError("a backoff is an array of two int 64 and two float 64")
    said = {name: entry[name].item() for name in PARTS if entry[name] != NOT_SAID}
    return said, raw[OWN_BACKOFF_SIZE:]


def have_own_backoff(
    block: bytes | memoryview, starts: Int64Array, sizes: Int64Array
) -> npt.NDArray[np.bool_]:
    """Which of the headers at these places of a block begin with a backoff."""
    out = np.zeros(len(starts), np.bool_)
    at = np.flatnonzero(sizes)
    out[at] = np.frombuffer(block, np.uint8)[starts[at]] == _ARRAY
    return out


def own_backoffs(block: bytes | memoryview, starts: Int64Array) -> npt.NDArray[np.void]:
    """The backoffs at these places of a block."""
    raw = np.frombuffer(block, np.uint8)
    picked = raw[starts[:, None] + np.arange(OWN_BACKOFF_SIZE)]
    return np.ascontiguousarray(picked).view(OWN_BACKOFF)[:, 0]
