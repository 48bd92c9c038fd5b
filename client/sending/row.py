"""Checks one message and converts it to a row of a batch, in the caller.

Everything that can be checked without the broker is checked here against the broker's limits, so
that the caller gets the error, and no other message of the batch fails.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, Unpack

from delaylog.client.codec import JSON, Codec
from delaylog.client.keywords import (
    ContentKeywords,
    OneMessageKeywords,
    QueuedSendKeywords,
    SendKeywords,
)
from delaylog.client.models import NewMessage
from delaylog.client.wire.checks import INT64_MAX
from delaylog.client.wire.due import due_of
from delaylog.client.wire.durations import in_numbers
from delaylog.contract.message_fields import MERGE_MODES, pack_fields
from delaylog.contract.times import UNIX_MS_MIN, UNIX_US_MIN

_MERGES: Final = (None, *MERGE_MODES)
_MERGE_KINDS: Final = {mode: 2 * index for index, mode in enumerate(_MERGES)}
_RELATIVE: Final = 1
_EITHER: Final = (("deliver_at_ms", "delay_ms", "at", "delay"), ("ttl_ms", "ttl"))
"""Keywords of one meaning: the one that a message gives takes the place of the default."""
_CONTENT: Final = tuple(ContentKeywords.__annotations__)
_MEMBERS: Final = tuple(
    each.name for each in fields(NewMessage) if each.name not in ("body", *_CONTENT)
)
Kind: TypeAlias = int
"""What all rows of a batch share. Bit 0: times are relative to the broker's now. The bits above:
the index of the merge mode in `_MERGES`.
"""
Packed: TypeAlias = dict[str, Any]
"""Fields beyond body and time, as `message_fields.pack_fields` returns them."""
Row: TypeAlias = tuple[bytes, Kind, int, Packed | None]
"""One checked message: body, kind, milliseconds, and its other fields if it has any. A plain tuple,
since one is made for each send.
"""


def checked_row(body: bytes | str | None, fields: QueuedSendKeywords, codec: Codec) -> Row:
    """The message of a send with these keywords; errors are those of `make_row`."""
    # Bytes and one number, the usual forms, take a quarter of the time of the general call.
    if type(body) is bytes and len(fields) == 1:
        delay_ms = fields.get("delay_ms")
        if type(delay_ms) is int and 0 <= delay_ms <= INT64_MAX:
            return body, _RELATIVE, delay_ms, None
        due_ms = fields.get("deliver_at_ms")
        if type(due_ms) is int and UNIX_MS_MIN <= due_ms < UNIX_US_MIN:
            return body, 0, due_ms, None
    return make_row(body, codec=codec, **fields)


def make_row(
    body: bytes | str | None,
    deliver_at_ms: int | None = None,
    delay_ms: int | None = None,
    at: datetime | None = None,
    delay: timedelta | None = None,
    codec: Codec = JSON,
    **fields: Unpack[OneMessageKeywords],
) -> Row:
    """The message as a row. TypeError or ValueError says what is wrong with it."""
    if body is None:
        body = _content(fields, codec)
    elif type(body) is not bytes:
        body = as_bytes(body)
    kind, time_ms = due_kind(deliver_at_ms, delay_ms, at, delay)
    if not fields:
        return body, kind, time_ms, None
    if "json" in fields or "value" in fields:
        raise ValueError(f"give one of body, {' and '.join(_CONTENT)}, not two")
    if fields.get("id") == "":
        raise ValueError("an id is not empty; leave it out to have one made")
    packed = pack_fields(in_numbers(fields, "ttl_ms") if "ttl" in fields else fields)
    merge = packed.pop("merge", None)
    if merge is not None:
        kind += _MERGE_KINDS[merge]
    return body, kind, time_ms, packed or None


def row_of(message: NewMessage | bytes | str, defaults: SendKeywords, codec: Codec = JSON) -> Row:
    """One of many messages as a row; `defaults` gives the fields that it leaves out."""
    if not isinstance(message, NewMessage):
        return make_row(message, **defaults)
    members: dict[str, Any] = dict(defaults)
    for names in _EITHER:
        if any(getattr(message, name) is not None for name in names):
            for name in names:
                members.pop(name, None)
    for name in _MEMBERS:
        value = getattr(message, name)
        if value is not None and value != ():
            members[name] = value
    for name in _CONTENT:
        value = getattr(message, name)
        if value is not ...:
            members[name] = value
    return make_row(message.body, codec=codec, **members)


def check_several(messages: object, call: str) -> None:
    """TypeError for a single str or bytes, whose elements would be sent as messages."""
    if isinstance(messages, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{call} takes a list, not one {type(messages).__name__}")


def is_relative(kind: Kind) -> bool:
    """Whether the times of these rows are delays from when the broker accepts them."""
    return bool(kind & _RELATIVE)


def merge_of(kind: Kind) -> str | None:
    """The merge mode of these rows; None = the topic's."""
    return _MERGES[kind >> 1]


def due_kind(
    deliver_at_ms: int | None, delay_ms: int | None, at: datetime | None, delay: timedelta | None
) -> tuple[Kind, int]:
    """(kind, milliseconds) of the due time; without any it is now."""
    time_ms, relative = due_of(deliver_at_ms, delay_ms, at, delay) or (0, True)
    if time_ms > INT64_MAX:
        raise ValueError(f"{time_ms} ms exceed what a broker can store")
    return (_RELATIVE if relative else 0), time_ms


def _content(fields: OneMessageKeywords, codec: Codec) -> bytes:
    """The body of a message that has `json` or `value`, which are taken out of its fields."""
    if "json" in fields:
        return JSON.encode(fields.pop("json"))
    if "value" not in fields:
        raise TypeError("a message has a body, json= or value=")
    body = codec.encode(fields.pop("value"))
    if not isinstance(body, bytes):
        raise TypeError(f"{codec!r} encodes to bytes, not {type(body).__name__}")
    return body


def as_bytes(body: object) -> bytes:
    """A body as bytes; a buffer is copied, since its owner may write into it."""
    if isinstance(body, str):
        return encoded("body", body)
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    kind = type(body).__name__
    raise TypeError(f"a body is bytes or str, not {kind}: give other values as json= or value=")


def encoded(name: str, text: str) -> bytes:
    """Text as UTF-8; ValueError for one that has none, such as half a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is not valid Unicode: {error}") from None
