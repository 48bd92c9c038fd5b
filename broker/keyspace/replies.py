"""What a command answers, before it is known which protocol the client speaks.

    bytes          bulk string               int       integer
    None           null (RESP2 `$-1`)        NO_ARRAY  null where an array was asked for (`*-1`)
    list, tuple    array                     Status    simple string, like `OK`
    Map            pairs                     Members   a set
    Double         a score                   Verbatim  text with a format
    bool           RESP3 `#t`; in RESP2 1, 0 BigNumber digits
    Push           out of band (RESP3 `>`)   ErrorReply

RESP2 has arrays for Map, Members and Push, bulk strings for Double, Verbatim and BigNumber.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias


class Status(bytes):
    """A simple string."""

    __slots__ = ()


class ErrorReply:
    """An error as a value: inside the reply of EXEC, or what redis.pcall gives."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ErrorReply) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"ErrorReply({self.text!r})"


class Map:
    """Pairs, flat: key, value, key, value."""

    __slots__ = ("flat",)

    def __init__(self, flat: Sequence[Reply]) -> None:
        self.flat = flat


class Members:
    """A set."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Reply]) -> None:
        self.items = items


class Push:
    """Out of band: pub/sub messages and their confirmations."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Reply]) -> None:
        self.items = items


class Double(float):
    """A score; written with 17 significant digits, as Redis 7.0 does."""

    __slots__ = ()


class Verbatim:
    """Text with a format of three letters, like `txt`."""

    __slots__ = ("form", "text")

    def __init__(self, text: bytes, form: bytes = b"txt") -> None:
        self.text = text
        self.form = form


class BigNumber:
    """A whole number of any size, as its digits."""

    __slots__ = ("digits",)

    def __init__(self, digits: bytes) -> None:
        self.digits = digits


class _NoArray:
    """The type of NO_ARRAY."""

    __slots__ = ()


class _Waits:
    """The type of WAITS."""

    __slots__ = ()


class _Written:
    """The type of WRITTEN."""

    __slots__ = ()


NO_ARRAY: Final = _NoArray()
WAITS: Final = _Waits()
"""Stands for the reply of a command that waits: it comes later, or never."""
WRITTEN: Final = _Written()
"""Stands for a reply that the command has put into `session.out` itself."""
OK: Final = Status(b"OK")
QUEUED: Final = Status(b"QUEUED")
PONG: Final = Status(b"PONG")

Reply: TypeAlias = (
    bytes
    | int
    | Sequence[Any]
    | Status
    | ErrorReply
    | Map
    | Members
    | Push
    | Double
    | Verbatim
    | BigNumber
    | _NoArray
    | _Waits
    | _Written
    | None
)
