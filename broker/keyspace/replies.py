"""Replies of commands, and their encoding in RESP2 and RESP3, exactly as Redis 7.0.15 does it.

    bytes          bulk string               int       integer
    None           null (RESP2 `$-1`)        NO_ARRAY  null where an array was asked for (`*-1`)
    list, tuple    array                     Status    simple string, like `OK`
    Map            pairs                     Members   a set
    Double         a score                   Verbatim  text for people
    Push           out of band (RESP3 `>`)   ErrorReply

A reply does not depend on the client's protocol version: RESP2 has arrays for Map, Members and
Push, bulk strings for Double and Verbatim.

`encode` returns the bytes of one reply. `encode_into` appends pieces, which the caller joins once
for many replies, so that large values are copied once. The most frequent types (bytes, integers,
null, statuses, lists) are tested first, by their exact type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final, TypeAlias

# -------------------------------------------------------------------------------------- replies


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


# ------------------------------------------------------------------------------------- encoding

_END: Final = b"\r\n"
_NO_BULK: Final = b"$-1\r\n"
_NO_LIST: Final = b"*-1\r\n"
_NULL: Final = b"_\r\n"

# Headers of short values and arrays, and replies of small integers, are encoded in advance.
_MADE: Final = 1024
_HEADS: Final = [b"$%d\r\n" % size for size in range(_MADE)]
_LISTS: Final = [b"*%d\r\n" % count for count in range(_MADE)]
_WHOLE: Final = [b":%d\r\n" % number for number in range(_MADE)]
_STATUSES: Final = {
    word: b"+%b\r\n" % word
    for word in (b"OK", b"QUEUED", b"PONG", b"string", b"list", b"set", b"zset", b"hash", b"none")
}

_ERROR_SIGN: Final = ord("-")
_TOO_LARGE: Final = (
    b"-ERR the reply would hold %d bytes of values, an array may hold %d: ask for fewer at once\r\n"
)

# A status or an error is one line, so line breaks in its text become spaces.
_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")

# A larger value is a piece without its header, so that it is not copied.
_COPIED_BYTES_MAX: Final = 4096

# With larger values a pipeline runs command by command, which limits the unsent replies.
_VALUES_BYTES_MAX: Final = 1 << 20

REPLY_BYTES_MAX: Final = 128 << 20
"""A larger array is refused, because a short command (MGET k k k …) could request any size. A
single string may be longer."""
REPLY_BYTES_A_TURN: Final = 1 << 20
"""After replies of this size, a client's replies are sent before more of its commands run."""
ANSWER_BYTES_MAX: Final = 640 << 20
"""Limit of a client's replies in one turn: the largest string and a reserve. If a transaction or
many large values exceed it, the connection is closed before the replies are joined.
"""
# The size of a shorter array is not computed.
_MEASURED_MIN: Final = 64


def encode(reply: Reply, resp: int) -> bytes:
    """Return the bytes of one reply in RESP `resp`, 2 or 3."""
    value: Any = reply
    kind = type(value)
    if kind is bytes:
        text: bytes = value
        size = len(text)
        if size < _MADE:
            return _HEADS[size] + text + _END
        return b"$%d\r\n%b\r\n" % (size, text)
    if kind is int:
        number: int = value
        if 0 <= number < _MADE:
            return _WHOLE[number]
        return b":%d\r\n" % number
    if value is None:
        return _NO_BULK if resp == 2 else _NULL
    if kind is Status:
        made = _STATUSES.get(value)
        if made is not None:
            return made
    out: list[bytes] = []
    encode_into(out, reply, resp)
    return b"".join(out)


def encode_into(out: list[bytes], reply: Reply, resp: int) -> None:
    """Append the pieces of a reply; joined, they equal the result of `encode`."""
    value: Any = reply
    kind = type(value)
    if kind is list or kind is tuple:
        _items(out, value, resp)
    elif kind is bytes:
        _bulk(out, value)
    elif kind is int or value is None:
        out.append(encode(value, resp))
    else:
        (_WRITERS.get(kind) or _writer_of(value))(out, value, resp)


def encode_values(out: list[bytes], values: list[bytes | None], resp: int) -> bool:
    """Append many replies, each a bulk string or null; if they are large, append none and return
    False.
    """
    sizes = [-1 if value is None else len(value) for value in values]
    if min(sizes) >= 0 and max(sizes) < _MADE:
        pieces: Any = zip(map(_HEADS.__getitem__, sizes), values, repeat(_END))
        out += chain.from_iterable(pieces)
        return True
    if sum(sizes) > _VALUES_BYTES_MAX:
        return False
    for value in values:
        if value is None:
            out.append(_NO_BULK if resp == 2 else _NULL)
        else:
            _bulk(out, value)
    return True


def _items(out: list[bytes], items: Sequence[Any], resp: int) -> None:
    """Append an array. The loop inlines `encode_into` for the usual types of elements."""
    count = len(items)
    append = out.append
    if count > _MEASURED_MIN and (size := _size_of(items)) > REPLY_BYTES_MAX:
        append(_TOO_LARGE % (size, REPLY_BYTES_MAX))
        return
    append(_LISTS[count] if count < _MADE else b"*%d\r\n" % count)
    for item in items:
        kind = type(item)
        if kind is bytes:
            size = len(item)
            if size < _MADE:
                append(_HEADS[size] + item + _END)
            else:
                _bulk(out, item)
        elif kind is int:
            append(_WHOLE[item] if 0 <= item < _MADE else b":%d\r\n" % item)
        elif item is None:
            append(_NO_BULK if resp == 2 else _NULL)
        else:
            encode_into(out, item, resp)


def _size_of(items: Sequence[Any]) -> int:
    """Return the total size of an array's strings, without nested arrays."""
    try:
        return sum(map(len, items))
    except TypeError:
        return sum(len(item) for item in items if type(item) is bytes)


def _bulk(out: list[bytes], value: bytes) -> None:
    size = len(value)
    if size < _MADE:
        out.append(_HEADS[size] + value + _END)
    elif size <= _COPIED_BYTES_MAX:
        out.append(b"$%d\r\n%b\r\n" % (size, value))
    else:
        out += (b"$%d\r\n" % size, value, _END)


def _write_items(out: list[bytes], reply: Sequence[Reply], resp: int) -> None:
    _items(out, reply, resp)


def _write_bulk(out: list[bytes], reply: bytes, _resp: int) -> None:
    _bulk(out, bytes(reply))


def _write_int(out: list[bytes], reply: int, _resp: int) -> None:
    out.append(b":%d\r\n" % reply)


def _write_status(out: list[bytes], reply: Status, _resp: int) -> None:
    made = _STATUSES.get(reply)
    out.append(made if made is not None else b"+%b\r\n" % reply.translate(_ONE_LINE))


def _write_error(out: list[bytes], reply: ErrorReply, _resp: int) -> None:
    # Trailing line breaks are dropped, others become spaces.
    out.append(b"-%b\r\n" % reply.text.rstrip(b"\r\n").translate(_ONE_LINE))


def _write_double(out: list[bytes], reply: Double, resp: int) -> None:
    digits = b"%.17g" % reply
    if resp == 2:
        _bulk(out, digits)
    else:
        out.append(b",%b\r\n" % digits)


def _write_no_array(out: list[bytes], _reply: Reply, resp: int) -> None:
    out.append(_NO_LIST if resp == 2 else _NULL)


def _write_map(out: list[bytes], reply: Map, resp: int) -> None:
    assert len(reply.flat) % 2 == 0, "a key without its value"
    _headed(out, reply.flat, resp, b"%%%d\r\n" % (len(reply.flat) // 2))


def _write_members(out: list[bytes], reply: Members, resp: int) -> None:
    _headed(out, reply.items, resp, b"~%d\r\n" % len(reply.items))


def _write_push(out: list[bytes], reply: Push, resp: int) -> None:
    _headed(out, reply.items, resp, b">%d\r\n" % len(reply.items))


def _headed(out: list[bytes], items: Sequence[Reply], resp: int, head: bytes) -> None:
    """Append items with the header of their RESP3 type; in RESP2 they are an array."""
    index = len(out)
    _items(out, items, resp)
    if resp != 2 and out[index][0] != _ERROR_SIGN:
        out[index] = head


def _write_verbatim(out: list[bytes], reply: Verbatim, resp: int) -> None:
    if resp == 2:
        _bulk(out, reply.text)
    else:
        # The length includes the format and its colon.
        out += (b"=%d\r\ntxt:" % (len(reply.text) + 4), reply.text, _END)


_Writer = Callable[[list[bytes], Any, int], None]

_WRITERS: Final[dict[type, _Writer]] = {
    bytearray: _write_bulk,
    Status: _write_status,
    ErrorReply: _write_error,
    Double: _write_double,
    Map: _write_map,
    Members: _write_members,
    Push: _write_push,
    type(NO_ARRAY): _write_no_array,
    Verbatim: _write_verbatim,
}


def _writer_of(reply: Reply) -> _Writer:
    """Return the writer for a subclass of a known type, or for another sequence."""
    if isinstance(reply, bytes | bytearray | memoryview):
        return _write_bulk
    if isinstance(reply, int):
        return _write_int
    if isinstance(reply, Sequence) and not isinstance(reply, str):
        return _write_items
    raise TypeError(f"a reply cannot be a {type(reply).__name__}")
