"""Replies of commands, independent of the protocol version of the client.

    bytes          bulk string               int       integer
    None           null (RESP2 `$-1`)        NO_ARRAY  null where an array was asked for (`*-1`)
    list, tuple    array                     Status    simple string, like `OK`
    Map            pairs                     Members   a set
    Double         a score                   Verbatim  text for people
    Push           out of band (RESP3 `>`)   ErrorReply

RESP2 has arrays for Map, Members and Push, bulk strings for Double and Verbatim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias


class Status(bytes):
    """A simple string."""

    __slots__ = ()


@dataclass(slots=True, unsafe_hash=True)
class ErrorReply:
    """An error as a value: a reply, an element of the reply of EXEC, or a result of redis.pcall."""

    text: bytes


@dataclass(slots=True, eq=False)
class Map:
    """Pairs, flat: key, value, key, value."""

    flat: Sequence[Reply]


@dataclass(slots=True, eq=False)
class Members:
    """A set."""

    items: Sequence[Reply]


@dataclass(slots=True, eq=False)
class Push:
    """Out of band: pub/sub messages and their confirmations."""

    items: Sequence[Reply]


class Double(float):
    """A score; written with 17 significant digits, as Redis 7.0 does."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class Verbatim:
    """Text in the format `txt`."""

    text: bytes


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
"""The command is blocked: its reply comes later, or never."""
WRITTEN: Final = _Written()
"""The command has appended its reply to `session.out` itself."""
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
    | _NoArray
    | _Waits
    | _Written
    | None
)
