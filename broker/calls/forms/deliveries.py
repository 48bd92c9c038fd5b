"""Deliveries on the wire: JSON, msgpack and bulk answers of receive and peek."""

from __future__ import annotations

import base64
from typing import Any

import msgpack
import numpy as np

from delaylog.broker.calls.shapes import receipt_text
from delaylog.broker.engine.model import Delivery
from delaylog.storage.batch import BATCH_VERSION
from delaylog.storage.columns import alike, some
from delaylog.storage.gather import gather
from delaylog.storage.layout import Int64Array, RowArray, ref_to_id
from delaylog.storage.own_backoff import OWN_BACKOFF_SIZE, have_own_backoff, split_own_backoff
from delaylog.storage.rows import bodies_only

NO_TAGS: list[str] = []
NO_HEADERS: dict[str, str] = {}
_META = ("id_size", "key_size", "tags_size", "headers_size")


def bulk_delivery(delivery: Delivery, columns: frozenset[str], now_ms: int) -> bytes:
    """The bulk answer: columns, bodies as one block."""
    rows = delivery.rows
    n = len(rows)
    fields: dict[str, Any] = {
        "v": BATCH_VERSION,
        "n": n,
        "now_ms": now_ms,
        "lease": delivery.lease,
        "lease_until_ms": delivery.lease_until_ms,
        "refs": delivery.origins.astype("<i8", copy=False).tobytes(),
        "deliver_at_ms": _column(rows["deliver_at"], "<i8"),
        "attempts": _column(delivery.attempts, "<u2"),
    }
    total = rows["size"].astype(np.int64)
    if bodies_only(rows):
        fields["body_size"] = _column(total, "<u4")
        fields["bodies"] = delivery.records
        if columns & {"priority"}:
            fields["priority"] = _column(rows["priority"], "<i4")
        fields["id_size"], fields["id"] = 0, b""
        for name in columns - {"priority"}:
            fields[f"{name}_size"], fields[name] = 0, b""
        return bytes(msgpack.packb(fields))
    sizes = {name: rows[name].astype(np.int64) for name in _META}
    meta = np.sum(list(sizes.values()), axis=0)
    starts = np.cumsum(total) - total
    for name in ("id", "key", "tags", "headers"):
        size = sizes[f"{name}_size"]
        if name == "id" or name in columns:
            at = starts
            if name == "headers" and some(size):
                own = have_own_backoff(delivery.records, starts, size) * OWN_BACKOFF_SIZE
                at, size = starts + own, size - own
            fields[f"{name}_size"] = _column(size, "<u2")
            fields[name] = gather(delivery.records, at, size) if some(size) else b""
        starts = starts + sizes[f"{name}_size"]
    fields["body_size"] = _column(total - meta, "<u4")
    fields["bodies"] = gather(delivery.records, starts, total - meta)
    if "priority" in columns:
        fields["priority"] = _column(rows["priority"], "<i4")
    return bytes(msgpack.packb(fields))


def _column(values: Int64Array, dtype: str) -> int | bytes:
    """A scalar when all values are alike, else raw bytes."""
    if alike(values):
        return int(values[0])
    return values.astype(dtype).tobytes()


def empty_bulk(columns: frozenset[str], now_ms: int) -> bytes:
    """The bulk answer of a receive that found nothing."""
    fields: dict[str, Any] = {
        "v": BATCH_VERSION,
        "n": 0,
        "now_ms": now_ms,
        "lease": 0,
        "lease_until_ms": 0,
        "refs": b"",
        "deliver_at_ms": b"",
        "attempts": b"",
        "body_size": b"",
        "bodies": b"",
        "id_size": b"",
        "id": b"",
    }
    for name in columns:
        fields[name] = b""
        if name != "priority":
            fields[f"{name}_size"] = b""
    return bytes(msgpack.packb(fields))


def body_members(body: bytes, *, packed: bool) -> dict[str, Any]:
    """`body` as text when it is UTF-8, else `body_base64`; bytes as they are in msgpack."""
    if packed:
        return {"body": body}
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def split_record(record: bytes, row: RowArray) -> tuple[str, str, list[str], dict[str, str], bytes]:
    """(id, key, tags, headers, body) of one record; see `own_backoff` for the one thing more."""
    ends = np.cumsum([int(row[name]) for name in _META]).tolist()
    raw_id, key = record[: ends[0]], record[ends[0] : ends[1]]
    tags = record[ends[1] : ends[2]]
    _, headers = split_own_backoff(record[ends[2] : ends[3]])
    return (
        raw_id.decode(),
        key.decode(),
        tags.decode().split("\n") if tags else [],
        msgpack.unpackb(headers) if headers else {},
        record[ends[3] :],
    )


def own_backoff(record: bytes, row: RowArray) -> dict[str, Any]:
    """The member `backoff` of a message that has one of its own."""
    start = sum(int(row[name]) for name in _META[:3])
    said, _ = split_own_backoff(record[start : start + int(row["headers_size"])])
    return {"backoff": said} if said else {}


def message_objects(
    rows: RowArray,
    records: bytes,
    origins: Int64Array,
    attempts: Int64Array,
    *,
    packed: bool,
    lease: int | None = None,
    lease_until_ms: int = 0,
) -> list[dict[str, Any]]:
    """Messages as members, for JSON and msgpack."""
    out = []
    size = rows["size"].astype(np.int64)
    ends = np.cumsum(size).tolist()
    starts = (np.cumsum(size) - size).tolist()
    meta = sum(rows[name].astype(np.int64) for name in _META)
    assert isinstance(meta, np.ndarray)
    bare = (meta == 0).tolist()
    due, priority = rows["deliver_at"].tolist(), rows["priority"].tolist()
    for k, (origin, tries) in enumerate(zip(origins.tolist(), attempts.tolist(), strict=True)):
        record = records[starts[k] : ends[k]]
        if bare[k]:
            text, key, tags, headers, body = "", "", NO_TAGS, NO_HEADERS, record
        else:
            text, key, tags, headers, body = split_record(record, rows[k])
        members: dict[str, Any] = {"id": text or ref_to_id(origin)}
        if lease is not None:
            members["receipt"] = receipt_text(lease, origin)
            members["lease_until_ms"] = lease_until_ms
        members.update(body_members(body, packed=packed))
        members["deliver_at_ms"] = due[k]
        members["attempts"] = tries
        members["priority"] = priority[k]
        members["tags"] = tags
        members["key"] = key or None
        members["headers"] = headers
        out.append(members)
    return out
