"""Packs large states as msgpack in parts.

`msgpack.packb` keeps the interpreter's lock from the first byte to the last, so a thread that packs
a checkpoint of 200 MB stops the event loop for a second. When it packs in parts, the loop can run
between two of them. The bytes are the same.
"""

from __future__ import annotations

import io
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack

PART_ITEMS: Final = 256
"""Items of one part: some tenths of a millisecond of packing."""
_LEVELS: Final = 2
"""How deep long lists and maps are packed in parts: the state, and its members."""


@dataclass(slots=True)
class PackedList:
    """A list whose items are already packed."""

    count: int
    blocks: list[bytes] = field(default_factory=list)
    """Items, one after another; no item is split between two blocks."""

    def __iter__(self) -> Iterator[Any]:
        for block in self.blocks:
            yield from _unpacker(block)


def unpacked_members(raw: bytes, *, lists: Container[str]) -> dict[str, Any]:
    """The map that `packed_parts` packed; members named in `lists` stay packed, as `PackedList`."""
    unpacker = _unpacker(raw)
    members: dict[str, Any] = {}
    for _ in range(unpacker.read_map_header()):
        name = unpacker.unpack()
        if name not in lists:
            members[name] = unpacker.unpack()
            continue
        count = unpacker.read_array_header()
        first = unpacker.tell()
        for _ in range(count):
            unpacker.skip()
        members[name] = PackedList(count, [raw[first : unpacker.tell()]])
    return members


def _unpacker(raw: bytes) -> msgpack.Unpacker:
    """Reads `raw` piece by piece, without a copy of all of it."""
    return msgpack.Unpacker(io.BytesIO(raw), strict_map_key=False, max_buffer_size=0)


def packed_parts(value: Any, levels: int = _LEVELS) -> Iterator[bytes]:
    """The parts of `msgpack.packb(value)`."""
    if levels and isinstance(value, Mapping):
        yield msgpack.Packer().pack_map_header(len(value))
        if levels == _LEVELS:
            for name, member in value.items():
                yield msgpack.packb(name)
                yield from packed_parts(member, levels - 1)
        else:
            yield from _in_parts([thing for pair in value.items() for thing in pair])
    elif levels and isinstance(value, (list, tuple)) and len(value) > PART_ITEMS:
        yield msgpack.Packer().pack_array_header(len(value))
        yield from _in_parts(value)
    elif isinstance(value, PackedList):
        yield msgpack.Packer().pack_array_header(value.count)
        yield from value.blocks
    else:
        yield msgpack.packb(value)


def _in_parts(items: list[Any] | tuple[Any, ...]) -> Iterator[bytes]:
    packer = msgpack.Packer()
    for first in range(0, len(items), PART_ITEMS):
        yield b"".join(map(packer.pack, items[first : first + PART_ITEMS]))
