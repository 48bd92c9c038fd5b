"""One message on its way into a batch: its members judged at once, in the caller.

The one rule: what can be judged without the broker is judged here, by its own limits, so that a
mistake is raised where it was made and never fails a batch it would share with others. A plain
message, of a body and a time, costs two type checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack

from delaylog.client.due import due_of
from delaylog.client.models import NewMessage

ID_BYTES_MAX: Final = 255
KEY_BYTES_MAX: Final = 255
TAGS_MAX: Final = 16
TAG_BYTES_MAX: Final = 64
HEADERS_BYTES_MAX: Final = 16_384
TTL_MS_MAX: Final = 2**53
PRIORITY_MAX: Final = 2**31 - 1
MAX_RETRY_MAX: Final = 2**16 - 2
INT64_MAX: Final = 2**63 - 1
# Numbers that say "as the topic says" in a bulk body.
TTL_DEFAULT: Final = -(2**63)
RETRY_DEFAULT: Final = 2**16 - 1

MERGE_MODES: Final = (None, "keep", "replace", "reject")
_MERGE_KINDS: Final = {mode: 2 * index for index, mode in enumerate(MERGE_MODES)}
_RELATIVE: Final = 1
_TIMES: Final = ("deliver_at_ms", "delay_ms", "at", "delay")
_MEMBERS: Final = tuple(each.name for each in fields(NewMessage) if each.name != "body")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")

Kind: TypeAlias = int
"""What all rows of a batch share: whether their times count from now, and how ids are merged."""


class Members(NamedTuple):
    """What a message has beyond a body and a time, as a bulk body wants it; empty = not given."""

    id: bytes = b""
    key: bytes = b""
    tags: bytes = b""
    headers: bytes = b""
    priority: int = 0
    ttl_ms: int = TTL_DEFAULT
    max_retry: int = RETRY_DEFAULT


NO_MEMBERS: Final = Members()


Row: TypeAlias = tuple[bytes, Kind, int, Members | None]
"""One checked message: body, kind, milliseconds, and its members if it has any. A plain tuple,
since one is made for each send.
"""


def make_row(
    body: bytes | str,
    deliver_at_ms: int | None = None,
    delay_ms: int | None = None,
    at: datetime | None = None,
    delay: timedelta | None = None,
    *,
    id: str | None = None,
    key: str | None = None,
    tags: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    priority: int | None = None,
    ttl_ms: int | None = None,
    max_retry: int | None = None,
    merge: str | None = None,
) -> Row:
    """The message as a row. TypeError or ValueError says what is wrong with it."""
    if type(body) is not bytes:
        body = as_bytes(body)
    kind, time_ms = due_kind(deliver_at_ms, delay_ms, at, delay)
    if merge is not None:
        kind += merge_kind(merge)
    if (
        id is None
        and key is None
        and not tags
        and not headers
        and priority is None
        and ttl_ms is None
        and max_retry is None
    ):
        return body, kind, time_ms, None
    members = Members(
        b"" if id is None else id_bytes(id),
        b"" if key is None else key_bytes(key),
        joined_tags(tags) if tags else b"",
        packed_headers(headers) if headers else b"",
        0 if priority is None else _whole("priority", priority, -PRIORITY_MAX, PRIORITY_MAX),
        TTL_DEFAULT if ttl_ms is None else _whole("ttl_ms", ttl_ms, -1, TTL_MS_MAX),
        RETRY_DEFAULT if max_retry is None else _whole("max_retry", max_retry, 0, MAX_RETRY_MAX),
    )
    return body, kind, time_ms, members


def row_of(message: NewMessage | bytes | str, defaults: Mapping[str, Any]) -> Row:
    """One of many messages as a row; what it does not say, the members in `defaults` do."""
    if not isinstance(message, NewMessage):
        return make_row(message, **defaults)
    members = dict(defaults)
    if any(getattr(message, name) is not None for name in _TIMES):
        for name in _TIMES:
            members.pop(name, None)
    for name in _MEMBERS:
        value = getattr(message, name)
        if value is not None and value != ():
            members[name] = value
    return make_row(message.body, **members)


def check_several(messages: object, call: str) -> None:
    """TypeError for one text or body, whose parts would be taken for as many messages."""
    if isinstance(messages, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{call} takes a list, not one {type(messages).__name__}")


def is_relative(kind: Kind) -> bool:
    """Whether the times of these rows count from when the broker has them."""
    return bool(kind & _RELATIVE)


def merge_of(kind: Kind) -> str | None:
    """How these rows want repeated ids merged; None = as the topic says."""
    return MERGE_MODES[kind >> 1]


def merge_kind(merge: str) -> Kind:
    """The part of a kind that says how ids are merged."""
    try:
        return _MERGE_KINDS[merge]
    except (KeyError, TypeError):
        raise ValueError(f"merge is keep, replace or reject, not {merge!r}") from None


def due_kind(
    deliver_at_ms: int | None, delay_ms: int | None, at: datetime | None, delay: timedelta | None
) -> tuple[Kind, int]:
    """(kind, milliseconds) of when it is due; without any time it is now."""
    # The two usual ways, without a further call; everything else goes through `due_of`.
    if at is None and delay is None:
        if deliver_at_ms is None:
            if delay_ms is None:
                return _RELATIVE, 0
            if type(delay_ms) is int and 0 <= delay_ms <= INT64_MAX:
                return _RELATIVE, delay_ms
        elif delay_ms is None and type(deliver_at_ms) is int and 0 <= deliver_at_ms <= INT64_MAX:
            return 0, deliver_at_ms
    due = due_of(deliver_at_ms, delay_ms, at, delay)
    assert due is not None, "at least one of the four is given"
    time_ms, relative = due
    if time_ms > INT64_MAX:
        raise ValueError(f"{time_ms} ms lie beyond what a broker can count")
    return (_RELATIVE if relative else 0), time_ms


def as_bytes(body: object) -> bytes:
    """A body as bytes; a buffer is copied, since its owner may write into it."""
    if isinstance(body, str):
        return encoded("body", body)
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    raise TypeError(f"a body is bytes or str, not {type(body).__name__}")


def encoded(name: str, text: str) -> bytes:
    """Text as UTF-8; ValueError for one that has none, such as half a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is not valid Unicode: {error}") from None


def id_bytes(id: str) -> bytes:
    """An id of the sender's own."""
    raw = _text("id", id, ID_BYTES_MAX)
    if not raw:
        raise ValueError("an id is not empty; leave it out to have one made")
    if raw.startswith(b"~"):
        raise ValueError(f"an id does not begin with '~', brokers make those: {id!r}")
    if not id.isprintable() and _CONTROL.search(id):
        raise ValueError(f"an id holds no control characters: {id!r}")
    return raw


def key_bytes(key: str) -> bytes:
    """An ordering key; the empty one is none."""
    return _text("key", key, KEY_BYTES_MAX)


def joined_tags(tags: Iterable[str]) -> bytes:
    """Tags as the broker keeps them, one a line."""
    if isinstance(tags, (str, bytes)):
        raise TypeError(f"tags are a sequence of str: use [{tags!r}]")
    if not isinstance(tags, Iterable):
        raise TypeError(f"tags are a sequence of str, not {type(tags).__name__}")
    raw = [_text("a tag", tag, TAG_BYTES_MAX) for tag in tags]
    if len(raw) > TAGS_MAX:
        raise ValueError(f"a message has at most {TAGS_MAX} tags, not {len(raw)}")
    for each in raw:
        if not each or b"\n" in each:
            raise ValueError(f"a tag is neither empty nor has newlines: {each.decode()!r}")
    return b"\n".join(raw)


def packed_headers(headers: Mapping[str, str]) -> bytes:
    """Headers as the broker keeps them."""
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers are a mapping of str to str, not {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"headers are str to str: {name!r}: {value!r}")
    try:
        packed: bytes = msgpack.packb(dict(headers))
    except UnicodeEncodeError as error:
        raise ValueError(f"headers are not valid Unicode: {error}") from None
    if len(packed) > HEADERS_BYTES_MAX:
        raise ValueError(f"headers take at most {HEADERS_BYTES_MAX} bytes, not {len(packed)}")
    return packed


def _text(name: str, value: str, bytes_max: int) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{name} is a str, not {type(value).__name__}")
    raw = encoded(name, value)
    if len(raw) > bytes_max:
        raise ValueError(f"{name} has at most {bytes_max} bytes of UTF-8, not {len(raw)}")
    return raw


def _whole(name: str, value: int, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an int, not {type(value).__name__}")
    if not low <= value <= high:
        raise ValueError(f"{name} lies from {low} to {high}: {value}")
    return value
