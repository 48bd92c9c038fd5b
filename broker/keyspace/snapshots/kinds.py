"""Encodes each kind of value for snapshots as lists, maps and bytes; large values in parts.

A kind splits a value into parts (each with its approximate size) and joins them again: the first
part creates the value, the others extend it. The kinds' numbers are stored in files, so a number is
never reused.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from delaylog.broker.keyspace.values.kinds import HashValue, ListValue, SetValue, Value
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values.stream import StreamValue

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
