"""Converts replies of commands to Lua and results of scripts to replies, as Redis 7.0 does.

    reply -> Lua       integer number, bulk string, null false, status {ok=}, error {err=},
                       array table, map and set flat tables, score string
    Lua -> reply       number truncated to an integer, string, true 1, false and nil null, {ok=}
                       status, {err=} error, any other table an array up to its first nil

Lua returns a nested result as a stream of pairs (kind, value), written by lua/results.lua.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from delaylog.broker.keyspace.replies import (
    NO_ARRAY,
    Double,
    ErrorReply,
    Map,
    Members,
    Push,
    Reply,
    Status,
    Verbatim,
)
from delaylog.broker.keyspace.scripts.limits import SMALL_BYTES

_INTEGER_MIN: Final = -(1 << 63)
_EXACT: Final = 1 << 53
# Most arguments of one call into Lua.
_PART: Final = 4000
_TOO_LARGE: Final = b"ERR not enough memory for the reply"


def number_text(number: float) -> bytes:
    """Format a number as a command's argument, like C's %.17g."""
    if type(number) is int:
        if -100000000000000000 < number < 100000000000000000:
            return b"%d" % number
        number = float(number)
    if number != number:
        return b"-nan" if math.copysign(1.0, number) < 0 else b"nan"
    return b"%.17g" % number


def integer(number: float) -> int:
    """Convert a number to an integer like C's cast to long long."""
    if type(number) is int and _INTEGER_MIN <= number < -_INTEGER_MIN:
        return number
    if not math.isfinite(number) or not _INTEGER_MIN <= number < -_INTEGER_MIN:
        return _INTEGER_MIN
    return int(number)


def line(text: bytes) -> bytes:
    """Replace line breaks, so that the text fits on one line of the protocol."""
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


# To Lua.


def to_lua(host: Any, reply: Reply, room: Callable[[], int]) -> Any:
    """Convert a reply for `api.call` in lua/redis.lua; `room` returns the memory left in bytes.

    A pair (None, problem) is an error.
    """
    if type(reply) is int:
        return _number(reply)
    size = _size(reply)
    if size > SMALL_BYTES and size > room():
        return (None, _TOO_LARGE)
    if type(reply) is ErrorReply:
        return (None, reply.text)
    return _value(host, reply)


def _size(reply: Any) -> int:
    """Estimate the bytes that a reply takes in Lua."""
    if isinstance(reply, bytes):
        return 64 + len(reply)
    if isinstance(reply, (list, tuple)):
        return 64 + sum(map(_size, reply))
    if type(reply) is Map:
        return 64 + sum(map(_size, reply.flat))
    if type(reply) is Members or type(reply) is Push:
        return 64 + sum(map(_size, reply.items))
    if type(reply) is ErrorReply:
        return 256 + len(reply.text)
    if type(reply) is Verbatim:
        return 256 + len(reply.text)
    return 64


def _number(number: int) -> float:
    return number if -_EXACT <= number <= _EXACT else float(number)


def _value(host: Any, reply: Any) -> Any:
    kind = type(reply)
    if kind is bytes:
        return reply
    if kind is int:
        return _number(reply)
    if reply is None or reply is NO_ARRAY:
        return False
    if kind is list or kind is tuple:
        return _array(host, reply)
    if kind is Status:
        return host[b"field"](b"ok", bytes(reply))
    if kind is ErrorReply:
        return host[b"failure"](reply.text)
    if kind is Double:
        return number_text(float(reply))
    if kind is Map:
        return _array(host, reply.flat)
    if kind is Members or kind is Push:
        return _array(host, reply.items)
    if kind is Verbatim:
        return reply.text
    if isinstance(reply, bytes):
        return bytes(reply)
    if isinstance(reply, Sequence):
        return _array(host, reply)
    return False


def _array(host: Any, items: Sequence[Any]) -> Any:
    values = [item if type(item) is bytes else _value(host, item) for item in items]
    if len(values) <= _PART:
        return host[b"array"](*values)
    table = host[b"array"]()
    for start in range(0, len(values), _PART):
        host[b"extend"](table, start, *values[start : start + _PART])
    return table


# From Lua.


def from_lua(kind: int, values: Sequence[Any]) -> Reply:
    """Build a script's reply. `values` is one value (kind 0), a flat array (1) or a stream (2)."""
    if kind == 0:
        return _plain(values[0] if values else None)
    if kind == 1:
        return [value if type(value) is bytes else integer(value) for value in values]
    return _read(iter(values))


def _plain(value: Any) -> Reply:
    kind = type(value)
    if kind is bytes:
        return value  # type: ignore[no-any-return]
    if kind is bool:
        return 1 if value else None
    if kind is int or kind is float:
        return integer(value)
    return None


def _read(stream: Iterator[Any]) -> Reply:
    kind, value = next(stream), next(stream)
    if kind == 0:
        return _plain(value)
    if kind == 1:
        return [_read(stream) for _ in range(value)]
    if kind == 2:
        return Status(line(value.split(b"\0")[0]))
    assert kind == 3, kind
    return ErrorReply(line(value.split(b"\0")[0].rstrip(b"\r\n")))
