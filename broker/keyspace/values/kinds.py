"""The kinds of values; a plain string is `bytes`, or `bytearray` once it was changed in place.

Each class is told apart by identity of its type, which costs a pointer's comparison. What a command
may do to a value stands with the commands of its family.
"""

from __future__ import annotations

from collections import deque
from typing import Any, TypeAlias

from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values.stream import StreamValue


class HashValue(dict[bytes, bytes]):
    """Fields and what they hold."""

    __slots__ = ("large",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.large = False
        """It once outgrew a listpack: OBJECT ENCODING never goes back."""


class ListValue(deque[bytes]):
    """A list; its left end is index 0."""

    __slots__ = ()


class SetValue(set[bytes]):
    """Members without order."""

    __slots__ = ("encoding",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.encoding = b"intset"
        """What OBJECT ENCODING says; it only ever grows."""


Value: TypeAlias = (
    bytes | bytearray | HashValue | ListValue | SetValue | SortedSetValue | StreamValue
)

TYPE_NAMES: dict[type, bytes] = {
    bytes: b"string",
    bytearray: b"string",
    HashValue: b"hash",
    ListValue: b"list",
    SetValue: b"set",
    SortedSetValue: b"zset",
    StreamValue: b"stream",
}
