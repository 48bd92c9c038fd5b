"""The layout of a snapshot file: a header, then chunks with checksums; the last is an end mark.

    header   HEADER (24 bytes)
    chunk    CHUNK (16 bytes) + payload, one after another, numbered from 1

    0 magic u32 | 4 version u16 | 6 zero u16 | 8 position u64 | 16 zero u32 | 20 crc32c u32
    0 payload size u32 | 4 crc32c u32 | 8 number u64 | 16 payload

A checksum covers its record, with the checksum's own field as zero. Together with the numbers it
detects chunks that are altered, missing or moved. `position` is a position in the physical log: the
file contains the effects of all frames before it. A payload is one msgpack array that begins with
its kind:

    [1, database, kind, keys, contents, ends]   values; `ends`: nil, or for each an expiry or nil
    [2, content]                                more of the last value of the previous chunk
    [3, {name: source}]                         function libraries
    [4, keys, libraries]                        end mark: the number of keys and of libraries
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

import msgpack
from crc32c import crc32c

MAGIC: Final = 0x534B4C44  # "DLKS"
VERSION: Final = 1
HEADER: Final = struct.Struct("<IHHQII")
HEADER_SIZE: Final = 24
assert HEADER.size == HEADER_SIZE
CHUNK: Final = struct.Struct("<IIQ")
CHUNK_SIZE: Final = 16
assert CHUNK.size == CHUNK_SIZE
CHUNK_BYTES_MAX: Final = (1 << 32) - 1

Read = Callable[[int], bytes]
"""Reads this number of bytes; fewer at the end of the file."""
Write = Callable[[bytes], None]


class What(IntEnum):
    """The kind of a chunk. 0 is never valid."""

    VALUES = 1
    MORE = 2
    LIBRARIES = 3
    END = 4


class SnapshotError(Exception):
    """The file is corrupt."""

    def __init__(self, what: str, offset: int) -> None:
        super().__init__(f"{what} at {offset}")
        self.what = what
        self.offset = offset


def encode_header(position: int) -> bytes:
    """Encode the header of a snapshot at a log position."""
    crc = crc32c(HEADER.pack(MAGIC, VERSION, 0, position, 0, 0))
    return HEADER.pack(MAGIC, VERSION, 0, position, 0, crc)


def decode_header(raw: bytes) -> int:
    """Decode the header; returns the log position. Raises SnapshotError."""
    if len(raw) != HEADER_SIZE or raw != encode_header(HEADER.unpack(raw)[3]):
        raise SnapshotError("a damaged header", 0)
    position: int = HEADER.unpack(raw)[3]
    return position


def encode_chunk(number: int, parts: list[Any]) -> list[bytes]:
    """Encode a chunk."""
    payload: bytes = msgpack.packb(parts)
    assert len(payload) <= CHUNK_BYTES_MAX, "a part of a value is smaller than this"
    crc = crc32c(payload, crc32c(CHUNK.pack(len(payload), 0, number)))
    return [CHUNK.pack(len(payload), crc, number), payload]


class Chunks:
    """Reads and checks chunks in order."""

    def __init__(self, read: Read) -> None:
        """Raises SnapshotError."""
        self._read = read
        self.position = decode_header(read(HEADER_SIZE))
        self.offset = HEADER_SIZE
        """Offset of the next chunk."""
        self.number = 0
        """Number of chunks read."""

    def next(self) -> list[Any]:
        """Return the payload of the next chunk. Raises SnapshotError."""
        head = self._read(CHUNK_SIZE)
        if len(head) != CHUNK_SIZE:
            raise SnapshotError("the file ends before its end mark", self.offset)
        size, crc, number = CHUNK.unpack(head)
        payload = self._read(size)
        sealed = crc32c(payload, crc32c(CHUNK.pack(size, 0, number)))
        if len(payload) != size or number != self.number + 1 or sealed != crc:
            raise SnapshotError("a damaged chunk", self.offset)
        self.number = number
        self.offset += CHUNK_SIZE + size
        parts: list[Any] = msgpack.unpackb(payload, strict_map_key=False)
        return parts

    def ended(self) -> None:
        """Check that nothing follows the end mark. Raises SnapshotError."""
        if self._read(1):
            raise SnapshotError("bytes after the end mark", self.offset)
