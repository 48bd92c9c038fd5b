"""Shapes of the native API: what JSON and msgpack members mean, checked once.

Every parse function takes untrusted members and returns plain values or raises a Problem that
names the member. A message becomes a `Single`: one row to be merged with others of its turn.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from delaylog.broker.engine.sending import (
    HEADERS_BYTES_MAX,
    KEY_BYTES_MAX,
    TAG_BYTES_MAX,
    TAGS_MAX,
    check_id,
)
from delaylog.broker.web.problems import Problem
from delaylog.storage.batch import BATCH_VERSION, DEFAULT_I64, DEFAULT_U16, MERGE_MODES

INT64_MAX: Final = 2**63 - 1
_MESSAGE: Final = frozenset(
    {
        "body",
        "body_base64",
        "deliver_at_ms",
        "delay_ms",
        "id",
        "priority",
        "ttl_ms",
        "max_retry",
        "tags",
        "key",
        "merge",
        "headers",
    }
)
_PLAIN: Final = frozenset({"body", "delay_ms", "deliver_at_ms"})


@dataclass(slots=True)
class Single:
    """One message to send."""

    body: bytes
    due_ms: int
    """Absolute time, or a delay when `relative`."""
    relative: bool
    id: bytes = b""
    key: bytes = b""
    tags: bytes = b""
    headers: bytes = b""
    priority: int = 0
    ttl_ms: int = DEFAULT_I64
    max_retry: int = DEFAULT_U16
    merge: str | None = None
    plain: bool = True
    """Only body and time are set."""


def take_int(
    members: Mapping[str, Any], name: str, low: int, high: int, item: int | None = None
) -> int | None:
    """An optional integer member."""
    value = members.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise Problem("bad_request", f"{name} must be an integer", field=name, item=item)
    if not low <= value <= high:
        raise Problem(
            "bad_request",
            f"{name} must lie from {low} to {high}, not {value}",
            field=name,
            item=item,
        )
    return value


def take_text(members: Mapping[str, Any], name: str, item: int | None = None) -> bytes | None:
    """An optional text member as UTF-8 bytes."""
    value = members.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Problem("bad_request", f"{name} must be text", field=name, item=item)
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise Problem(
            "bad_request", f"{name} must be valid Unicode", field=name, item=item
        ) from None


def _take_body(members: Mapping[str, Any], item: int | None) -> bytes:
    body = members.get("body")
    if body is not None:
        if members.get("body_base64") is not None:
            raise Problem(
                "bad_request", "give body or body_base64, not both", field="body", item=item
            )
        if isinstance(body, bytes):
            return body
        found = take_text(members, "body", item)
        assert found is not None
        return found
    encoded = members.get("body_base64")
    if encoded is None:
        raise Problem("bad_request", "body or body_base64 is missing", field="body", item=item)
    if not isinstance(encoded, str):
        raise Problem("bad_request", "body_base64 must be text", field="body_base64", item=item)
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise Problem(
            "bad_request", "body_base64 is not base64", field="body_base64", item=item
        ) from None


def parse_message(
    members: Any, *, body_max: int, horizon_ms: int, now_ms: int, item: int | None = None
) -> Single:
    """One message of a send. Raises a Problem naming the member (and the item of an array)."""
    if not isinstance(members, dict):
        raise Problem("bad_request", "a message must be an object", item=item)
    body = _take_body(members, item)
    if len(body) > body_max:
        raise Problem("too_large", f"a body has at most {body_max} bytes", field="body", item=item)
    due = take_int(members, "deliver_at_ms", 0, INT64_MAX, item)
    delay = take_int(members, "delay_ms", 0, INT64_MAX, item)
    if due is not None and delay is not None:
        raise Problem(
            "bad_request", "give deliver_at_ms or delay_ms, not both", field="delay_ms", item=item
        )
    if (delay or 0) > horizon_ms or (due or 0) > now_ms + horizon_ms:
        raise Problem(
            "bad_request",
            f"the due time is over the horizon of {horizon_ms} ms",
            field="delay_ms" if due is None else "deliver_at_ms",
            item=item,
        )
    single = Single(body, due if due is not None else (delay or 0), due is None)
    if not members.keys() <= _PLAIN:
        _parse_rest(members, single, item)
    return single


def _parse_rest(members: Mapping[str, Any], single: Single, item: int | None) -> None:
    for name in members:
        if name not in _MESSAGE:
            raise Problem(
                "bad_request", f"unknown member {name!r}", field=str(name)[:64], item=item
            )
    single.plain = False
    raw_id = take_text(members, "id", item)
    if raw_id:
        check_id(raw_id, item if item is not None else 0)
        single.id = raw_id
    key = take_text(members, "key", item) or b""
    if len(key) > KEY_BYTES_MAX:
        raise Problem(
            "bad_request", f"a key has at most {KEY_BYTES_MAX} bytes", field="key", item=item
        )
    single.key = key
    single.tags = parse_tags(members.get("tags"), item)
    single.headers = _parse_headers(members.get("headers"), item)
    single.priority = take_int(members, "priority", -(2**31) + 1, 2**31 - 1, item) or 0
    ttl = take_int(members, "ttl_ms", -1, 2**53, item)
    if ttl is not None:
        single.ttl_ms = ttl
    retry = take_int(members, "max_retry", 0, 2**16 - 2, item)
    if retry is not None:
        single.max_retry = retry
    merge = members.get("merge")
    if merge is not None and merge not in MERGE_MODES:
        raise Problem(
            "bad_request",
            f"merge must be one of {', '.join(MERGE_MODES)}",
            field="merge",
            item=item,
        )
    single.merge = merge


def parse_tags(value: Any, item: int | None = None) -> bytes:
    """Tags joined by newlines."""
    if value is None:
        return b""
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise Problem("bad_request", "tags must be a list of texts", field="tags", item=item)
    try:
        tags = [tag.encode() for tag in value]
    except UnicodeEncodeError:
        raise Problem(
            "bad_request", "tags must be valid Unicode", field="tags", item=item
        ) from None
    if len(tags) > TAGS_MAX or any(not 1 <= len(t) <= TAG_BYTES_MAX or b"\n" in t for t in tags):
        raise Problem(
            "bad_request",
            f"at most {TAGS_MAX} tags of 1 to {TAG_BYTES_MAX} bytes, without newlines",
            field="tags",
            item=item,
        )
    return b"\n".join(tags)


def _parse_headers(value: Any, item: int | None) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, dict) or not all(
        isinstance(name, str) and isinstance(text, str) for name, text in value.items()
    ):
        raise Problem(
            "bad_request", "headers must be an object of texts", field="headers", item=item
        )
    if not value:
        return b""
    try:
        packed = bytes(msgpack.packb(value))
    except UnicodeEncodeError:
        raise Problem(
            "bad_request", "headers must be valid Unicode", field="headers", item=item
        ) from None
    if len(packed) > HEADERS_BYTES_MAX:
        raise Problem(
            "bad_request",
            f"headers take at most {HEADERS_BYTES_MAX} bytes",
            field="headers",
            item=item,
        )
    return packed


@dataclass(frozen=True, slots=True)
class ReceiveCall:
    """Parameters of receive and peek."""

    count_max: int
    wait_ms: int
    lease_ms: int | None
    columns: frozenset[str]


_RECEIPT: Final = re.compile(r"[0-9a-f]{32}\Z")
_RECEIVE: Final = frozenset({"max", "wait_ms", "lease_ms", "columns", "group"})
_COLUMNS: Final = frozenset({"key", "tags", "headers", "priority"})


def parse_receive(members: Any, *, receive_max: int, wait_max: int, lease_max: int) -> ReceiveCall:
    """Parameters of a receive; all are optional."""
    if not isinstance(members, dict):
        raise Problem("bad_request", "the body must be an object")
    for name in members:
        if name not in _RECEIVE:
            raise Problem("bad_request", f"unknown member {name!r}", field=str(name)[:64])
    check_group(members)
    columns = members.get("columns") or []
    if not isinstance(columns, list) or not all(
        isinstance(name, str) and name in _COLUMNS for name in columns
    ):
        raise Problem(
            "bad_request", f"columns may be {', '.join(sorted(_COLUMNS))}", field="columns"
        )
    count = take_int(members, "max", 1, receive_max)
    return ReceiveCall(
        1 if count is None else count,
        take_int(members, "wait_ms", 0, wait_max) or 0,
        take_int(members, "lease_ms", 1, lease_max),
        frozenset(columns),
    )


def check_group(members: Mapping[str, Any]) -> None:
    """Refuse a group that is not there, so that nothing is done to another one."""
    if members.get("group") not in (None, "default"):
        raise Problem("unknown", "there is no such group; use default or none", field="group")


def check_columns(fields: Mapping[str, Any], known: frozenset[str]) -> None:
    """Refuse a bulk body of another version or with columns that mean nothing."""
    for name in fields:
        if name not in known:
            raise Problem("bad_request", f"unknown column {name!r}", field=name[:64])
    if fields.get("v") != BATCH_VERSION or isinstance(fields["v"], bool):
        raise Problem("bad_request", f"v must be {BATCH_VERSION}", field="v")


def check_count(fields: Mapping[str, Any], count: int) -> None:
    """Refuse a bulk body whose `n` is not the number of refs it holds."""
    n = fields.get("n")
    if n is not None and (n != count or isinstance(n, bool)):
        raise Problem("bad_request", f"n does not match the {count} refs", field="n")


def parse_receipt(text: Any, item: int) -> tuple[int, int]:
    """(lease, origin ref) of a receipt."""
    if isinstance(text, str) and _RECEIPT.match(text):
        ref = int(text[16:], 16)
        if ref <= INT64_MAX:
            return int(text[:16], 16), ref
    raise Problem(
        "bad_request", "a receipt is 32 hex digits, as receive gave it", field="receipts", item=item
    )


def receipt_text(lease: int, origin: int) -> str:
    """The printable receipt of a delivery."""
    return f"{lease:016x}{origin:016x}"
