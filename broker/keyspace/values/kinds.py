"""The kinds of values; a string is `bytes`.

Commands compare the type by identity, which costs a pointer comparison. The operations on a value
are in the commands of its family.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values.stream import StreamValue


class HashValue(dict[bytes, bytes]):
    """Fields and their values."""

    __slots__ = ()


class ListValue(deque[bytes]):
    """A list; its left end is index 0."""

    __slots__ = ()


class SetValue(set[bytes]):
    """Unordered members."""

    __slots__ = ()


Value: TypeAlias = bytes | HashValue | ListValue | SetValue | SortedSetValue | StreamValue

TYPE_NAMES: dict[type, bytes] = {
    bytes: b"string",
    HashValue: b"hash",
    ListValue: b"list",
    SetValue: b"set",
    SortedSetValue: b"zset",
    StreamValue: b"stream",
}
