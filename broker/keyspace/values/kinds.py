"""The kinds of values; a plain string is `bytes`, or `bytearray` once it was changed in place.

Commands compare the type by identity, which costs a pointer comparison. The operations on a value
are in the commands of its family.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from delaylog.broker.keyspace.values.number_texts import is_int
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values.stream import StreamValue

HASH_FIELDS_SMALL_MAX: Final = 512
HASH_TEXT_SMALL_MAX: Final = 64
"""A hash above one of these limits is not a listpack in Redis: OBJECT ENCODING shows that, and
HSCAN returns it in pages."""
SET_INTEGERS_SMALL_MAX: Final = 512
"""A set with more members, or with one that is not an integer, is a hash table in Redis 7.0."""


class HashValue(dict[bytes, bytes]):
    """Fields and their values."""

    __slots__ = ("large",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.large = False
        """The hash has outgrown a listpack once; OBJECT ENCODING never goes back."""

    def note_added(self, texts: list[bytes]) -> None:
        """Set `large` if these fields and values, which were put in, make the hash large."""
        if not self.large and (
            len(self) > HASH_FIELDS_SMALL_MAX or max(map(len, texts)) > HASH_TEXT_SMALL_MAX
        ):
            self.large = True

    def is_large(self) -> bool:
        """Whether the hash outgrew a listpack. In a loaded hash `large` may not be set yet."""
        if not self.large and len(self) > HASH_FIELDS_SMALL_MAX:
            self.large = True
        return self.large


class ListValue(deque[bytes]):
    """A list; its left end is index 0."""

    __slots__ = ()


class SetValue(set[bytes]):
    """Unordered members."""

    __slots__ = ("encoding",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.encoding = b"intset"
        """The result of OBJECT ENCODING; it never goes back to `intset`."""

    def note_added(self, members: Iterable[bytes]) -> None:
        """Set `encoding` after these members were put in."""
        if self.encoding == b"intset" and (
            len(self) > SET_INTEGERS_SMALL_MAX or not all(map(is_int, members))
        ):
            self.encoding = b"hashtable"


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
