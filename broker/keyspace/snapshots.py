"""Snapshot files of the keyspace: layout, encoding of values, writing, and loading or checking.

A file is a header, then chunks with checksums; the last is an end mark.

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

Values are encoded as lists, maps and bytes; large values in parts. A kind splits a value into parts
(each with its approximate size) and joins them again: the first part creates the value, the others
extend it. The kinds' numbers are stored in files, so a number is never reused. A keyspace is
written chunk by chunk, with a few chunks in memory at a time.
"""

from __future__ import annotations

import gc
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

import msgpack
from crc32c import crc32c

from delaylog.broker.keyspace.keyspace import (
    TYPE_NAMES,
    Database,
    HashValue,
    Keyspace,
    ListValue,
    SetValue,
    Value,
)
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values.stream import StreamValue

# --------------------------------------------------------------------------------------- layout

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


# --------------------------------------------------------------------------------------- values

PART_BYTES: Final = 1 << 20
"""Size of a part of a large value; a few parts are in memory besides the keyspace."""
_ELEMENT_BYTES: Final = 8
"""Overhead of an element in a part, so that a part never has a million empty elements."""

T = TypeVar("T")


class Kind(NamedTuple):
    """How values of one class are written and read."""

    number: int
    parts: Callable[[Any], Iterator[tuple[Any, int]]]
    make: Callable[[Any], Value]
    extend: Callable[[Any, Any], None]


def _in_parts(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[tuple[list[T], int]]:
    """Split items into lists of about PART_BYTES; at least one list."""
    part: list[T] = []
    size = 0
    for item in items:
        if size >= PART_BYTES:
            yield part, size
            part, size = [], 0
        part.append(item)
        size += size_of(item) + _ELEMENT_BYTES
    yield part, size


def _maker(cls: Callable[[Any], Value]) -> Callable[[Any], Value]:
    """Return a function that builds a value from [marks, elements]; the marks are empty."""
    return lambda content: cls(content[1])


def _update(value: HashValue | SetValue, content: Any) -> None:
    value.update(content[1])


def _extend(value: ListValue, content: Any) -> None:
    value.extend(content[1])


def _no_more(value: Any, content: Any) -> None:  # noqa: ARG001
    raise ValueError("a value of this kind has one part")


# --------------------------------------------------------------------------- strings


def _string_parts(value: bytes) -> Iterator[tuple[Any, int]]:
    yield value, len(value)


def _same(content: bytes) -> bytes:
    return content


# --------------------------------------------------------------------------- hashes


def _hash_parts(value: HashValue) -> Iterator[tuple[Any, int]]:
    size = sum(map(len, value)) + sum(map(len, value.values())) + _ELEMENT_BYTES * len(value)
    if size <= PART_BYTES:
        yield [[], dict(value)], size
        return
    for pairs, size in _in_parts(value.items(), lambda pair: len(pair[0]) + len(pair[1])):
        yield [[], dict(pairs)], size


# --------------------------------------------------------------------------- lists and sets


def _many_parts(value: ListValue | SetValue) -> Iterator[tuple[Any, int]]:
    size = sum(map(len, value)) + _ELEMENT_BYTES * len(value)
    if size <= PART_BYTES:
        yield [[], list(value)], size
        return
    for items, size in _in_parts(value, len):
        yield [[], items], size


# --------------------------------------------------------------------------- sorted sets


def _zset_parts(value: SortedSetValue) -> Iterator[tuple[Any, int]]:
    """[large, members, scores as doubles], in order."""
    for pairs, size in _in_parts(value.order, lambda pair: len(pair[1]) + 8):
        scores = array("d", [score for score, _ in pairs])
        yield [value.large, [member for _, member in pairs], scores.tobytes()], size


def _pairs_of(content: Any) -> tuple[list[bytes], list[float]]:
    scores = array("d")
    scores.frombytes(content[2])
    return content[1], scores.tolist()


def _make_zset(content: Any) -> SortedSetValue:
    value = SortedSetValue()
    value.large = content[0]
    _extend_zset(value, content)
    return value


def _extend_zset(value: SortedSetValue, content: Any) -> None:
    members, scores = _pairs_of(content)
    value.scores.update(zip(members, scores, strict=True))
    value.order.update(zip(scores, members, strict=True))


# --------------------------------------------------------------------------- streams


def _stream_parts(value: StreamValue) -> Iterator[tuple[Any, int]]:
    """Write a stream as one part, by `StreamValue.plain`."""
    yield value.plain(), PART_BYTES


# --------------------------------------------------------------------------- all

STRING: Final = 1

KINDS: Final[dict[type, Kind]] = {
    bytes: Kind(STRING, _string_parts, _same, _no_more),
    HashValue: Kind(3, _hash_parts, _maker(HashValue), _update),
    ListValue: Kind(4, _many_parts, _maker(ListValue), _extend),
    SetValue: Kind(5, _many_parts, _maker(SetValue), _update),
    SortedSetValue: Kind(6, _zset_parts, _make_zset, _extend_zset),
    StreamValue: Kind(7, _stream_parts, StreamValue.from_plain, _no_more),
}
BY_NUMBER: Final = {kind.number: (name, kind) for name, kind in KINDS.items()}


# -------------------------------------------------------------------------------------- writing


@dataclass(slots=True)
class Summary:
    """Counts of a snapshot."""

    position: int
    keys: int = 0
    libraries: int = 0
    size: int = 0
    chunks: int = 0


@dataclass(slots=True)
class _Pile:
    """Buffers values of one kind until a chunk is full."""

    keys: list[bytes] = field(default_factory=list)
    contents: list[Any] = field(default_factory=list)
    ends: list[int | None] = field(default_factory=list)
    volatile: bool = False
    size: int = 0


class _Writer:
    def __init__(self, write: Write, summary: Summary) -> None:
        self._write = write
        self._summary = summary

    def chunk(self, *parts: Any) -> None:
        summary = self._summary
        summary.chunks += 1
        for block in encode_chunk(summary.chunks, list(parts)):
            self._write(block)
            summary.size += len(block)

    def database(self, database: Database) -> None:
        number, expires = database.number, database.expires
        piles: dict[type, _Pile] = {}
        for key, value in database.values.items():
            kind = value.__class__
            pile = piles.get(kind)
            if pile is None:
                pile = piles[kind] = _Pile()
            parts: Iterator[tuple[Any, int]] = iter(())
            if kind is bytes:
                content, size = value, len(value)
            else:
                parts = KINDS[kind].parts(value)
                content, size = next(parts)
            pile.keys.append(key)
            pile.contents.append(content)
            pile.size += size + len(key) + 8
            if expires:
                at_ms = expires.get(key)
                pile.ends.append(at_ms)
                if at_ms is not None:
                    pile.volatile = True
            if pile.size >= PART_BYTES:
                self._flush(number, kind, piles.pop(kind))
                for content, _ in parts:
                    self.chunk(What.MORE, content)
        for kind, pile in piles.items():
            self._flush(number, kind, pile)

    def _flush(self, database: int, kind: type, pile: _Pile) -> None:
        ends = pile.ends if pile.volatile else None
        self.chunk(What.VALUES, database, KINDS[kind].number, pile.keys, pile.contents, ends)
        self._summary.keys += len(pile.keys)


def write_snapshot(keyspace: Keyspace, position: int, write: Write) -> Summary:
    """Write the keyspace as of the log position `position`."""
    summary = Summary(position)
    head = encode_header(position)
    write(head)
    summary.size = len(head)
    writer = _Writer(write, summary)
    for database in keyspace.databases:
        writer.database(database)
    if keyspace.libraries:
        summary.libraries = len(keyspace.libraries)
        writer.chunk(What.LIBRARIES, keyspace.libraries)
    writer.chunk(What.END, summary.keys, summary.libraries)
    return summary


# -------------------------------------------------------------------------------------- reading

_FREEZE_KEYS: Final = 100_000
"""From this number of keys on, loaded objects are excluded from garbage collection: a full
collection would scan them all, find no garbage, and block the process for a noticeable time.
"""


@contextmanager
def _no_collector(keyspace: Keyspace) -> Iterator[None]:
    """Pause the garbage collector: scanning a million live objects doubles the load time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            if sum(len(database.values) for database in keyspace.databases) >= _FREEZE_KEYS:
                gc.freeze()
            gc.enable()


def load_snapshot(keyspace: Keyspace, read: Read) -> Summary:
    """Load into an empty keyspace. Raises SnapshotError; the keyspace is unusable then."""
    chunks = Chunks(read)
    filler = _Filler(keyspace)
    with _no_collector(keyspace):
        while True:
            at = chunks.offset
            try:
                end = filler.take(chunks.next())
            except (ValueError, TypeError, LookupError, msgpack.UnpackException) as error:
                raise SnapshotError(f"an invalid chunk ({error})", at) from None
            if end is not None:
                break
    keys = sum(len(database.values) for database in keyspace.databases)
    if end != (keys, len(keyspace.libraries)):
        raise SnapshotError("an end mark with wrong counts", at)
    chunks.ended()
    return Summary(chunks.position, *end, size=chunks.offset, chunks=chunks.number)


class _Filler:
    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._last: tuple[Kind, Value] | None = None

    def take(self, parts: list[Any]) -> tuple[int, int] | None:
        """Load a chunk; returns the counts if it is the end mark."""
        what = parts[0]
        if what == What.VALUES:
            self._values(*parts[1:])
        elif what == What.MORE:
            if self._last is None:
                raise ValueError("no value to extend")
            kind, value = self._last
            kind.extend(value, parts[1])
        elif what == What.LIBRARIES:
            self._keyspace.libraries.update(parts[1])
        elif what == What.END:
            return parts[1], parts[2]
        else:
            raise ValueError(f"kind {what!r}")
        return None

    def _values(
        self,
        number: int,
        kind_number: int,
        keys: list[bytes],
        contents: list[Any],
        ends: list[int | None] | None,
    ) -> None:
        database = self._keyspace.databases[number]
        _, kind = BY_NUMBER[kind_number]
        made = contents if kind_number == STRING else [kind.make(content) for content in contents]
        database.values.update(zip(keys, made, strict=True))
        self._last = (kind, made[-1])
        if ends is not None:
            pairs = zip(keys, ends, strict=True)
            # Their expiry hints are made later, by `Keyspace.begin_expiring`.
            database.expires.update((key, at_ms) for key, at_ms in pairs if at_ms is not None)


class ChunkCheck:
    """Checks a snapshot chunk by chunk without building its values."""

    def __init__(self, read: Read) -> None:
        """Raises SnapshotError."""
        self._chunks = Chunks(read)
        self._over = False
        self.summary = Summary(self._chunks.position)

    def next(self) -> dict[str, Any] | None:
        """Describe the next chunk; None after the end mark. Raises SnapshotError."""
        if self._over:
            return None
        chunks, summary = self._chunks, self.summary
        at = chunks.offset
        parts = chunks.next()
        line: dict[str, Any] = {"offset": at, "bytes": chunks.offset - at}
        try:
            line["what"] = What(parts[0]).name
            if parts[0] == What.VALUES:
                line |= self._values(*parts[1:])
            elif parts[0] == What.LIBRARIES:
                summary.libraries += len(parts[1])
                line["names"] = [name.decode(errors="replace") for name in parts[1]]
            elif parts[0] == What.END:
                if parts[1:] != [summary.keys, summary.libraries]:
                    raise ValueError("wrong counts")
                line |= {"keys": parts[1], "libraries": parts[2]}
                self._over = True
                chunks.ended()
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise SnapshotError(f"an invalid chunk ({error})", at) from None
        summary.size, summary.chunks = chunks.offset, chunks.number
        return line

    def _values(
        self,
        database: int,
        kind: int,
        keys: list[bytes],
        contents: list[Any],
        ends: list[int | None] | None,
    ) -> dict[str, Any]:
        if len(keys) != len(contents) or (ends is not None and len(ends) != len(keys)):
            raise ValueError("keys without values")
        self.summary.keys += len(keys)
        cls, _ = BY_NUMBER[kind]
        volatile = sum(end is not None for end in ends or ())
        name = TYPE_NAMES[cls].decode()
        return {"database": database, "type": name, "keys": len(keys), "volatile": volatile}
