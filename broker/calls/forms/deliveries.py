"""Deliveries on the wire: JSON, msgpack and bulk answers of receive and peek."""

from __future__ import annotations

import base64
from struct import pack
from typing import Any, Final

import msgpack
import numpy as np

from delaylog.broker.calls.shapes import receipt_texts
from delaylog.broker.engine.model import Delivery, FewDelivery
from delaylog.contract.own_backoff import split_own_backoff
from delaylog.storage.columns import alike
from delaylog.storage.layout import INDEX_ENTRY, TEXTS
from delaylog.storage.messages.batch import BATCH_VERSION
from delaylog.storage.messages.records import Record, RecordParts, cut_record
from delaylog.storage.messages.rows import bodies_only

COLUMNS: Final = frozenset(("headers", "key", "priority", "tags"))
"""The optional columns of a bulk answer."""
_NONE: Final = np.empty(0, np.int64)
NOTHING: Final = Delivery(0, 0, _NONE, np.empty(0, INDEX_ENTRY), b"", _NONE, 0)
"""The delivery of a receive that found nothing."""
_DTYPES: Final = {
    "refs": "<i8",
    "deliver_at_ms": "<i8",
    "attempts": "<u2",
    "priority": "<i4",
    "body_size": "<u4",
}
_TEXT_SIZE: Final = "<u2"
_CODES: Final = {"<i8": "q", "<u2": "H", "<i4": "i", "<u4": "I"}
"""The same for `struct`."""


def _envelope(delivery: Delivery, now_ms: int) -> dict[str, Any]:
    """The members that are no columns."""
    return {
        "v": BATCH_VERSION,
        "n": delivery.count,
        "now_ms": now_ms,
        "lease": delivery.lease,
        "lease_until_ms": delivery.lease_until_ms,
    }


def bulk_fields(delivery: Delivery, columns: frozenset[str], now_ms: int) -> dict[str, Any]:
    """The members of a bulk answer before packing: integer columns are arrays of any type.

    If the messages have no texts besides their bodies, the columns of the other texts are absent.
    """
    rows = delivery.rows
    fields = _envelope(delivery, now_ms) | {
        "refs": delivery.origins,
        "deliver_at_ms": rows["deliver_at"],
        "attempts": delivery.attempts,
    }
    if "priority" in columns:
        fields["priority"] = rows["priority"]
    if bodies_only(rows):
        return fields | {"body_size": rows["size"], "bodies": delivery.records}
    parts = RecordParts(rows, delivery.records)
    fields |= {"body_size": parts.sizes["body"], "bodies": parts.cut("body")}
    for name in ("id", *(columns - {"priority"})):
        fields |= {f"{name}_size": parts.sizes[name], name: parts.cut(name)}
    return fields


def bulk_delivery(
    delivery: Delivery, columns: frozenset[str], now_ms: int, **more: object
) -> bytes:
    """The bulk answer; `more` = further members. A column of equal integers is sent as one integer,
    except the refs.
    """
    if isinstance(delivery, FewDelivery):
        fields = _few_fields(delivery, columns, now_ms)
    else:
        fields = bulk_fields(delivery, columns, now_ms)
    for name in ("id", *(columns - {"priority"})):
        fields.setdefault(f"{name}_size", 0 if delivery.count else b"")
        fields.setdefault(name, b"")
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            if name != "refs" and len(value) and alike(value):
                fields[name] = int(value[0])
            else:
                fields[name] = value.astype(_DTYPES.get(name, _TEXT_SIZE)).tobytes()
        elif isinstance(value, list):
            if name != "refs" and value.count(value[0]) == len(value):
                fields[name] = value[0]
            else:
                code = _CODES[_DTYPES.get(name, _TEXT_SIZE)]
                fields[name] = pack(f"<{len(value)}{code}", *value)
    return bytes(msgpack.packb(fields | more))


def _few_fields(delivery: FewDelivery, columns: frozenset[str], now_ms: int) -> dict[str, Any]:
    """The same members as those of `bulk_fields`, with lists in place of arrays."""
    few = delivery.few
    rows = [one.row for one in few]
    fields = _envelope(delivery, now_ms) | {
        "refs": [row.origin for row in rows],
        "deliver_at_ms": [row.deliver_at for row in rows],
        "attempts": delivery.tries,
    }
    if "priority" in columns:
        fields["priority"] = [row.priority for row in rows]
    parts = [cut_record(one.record, one.row) for one in few]
    bodies = [part[-1] for part in parts]
    fields |= {"body_size": list(map(len, bodies)), "bodies": b"".join(bodies)}
    if any(any(part[:-1]) for part in parts):
        for name in ("id", *(columns - {"priority"})):
            texts = [part[TEXTS.index(name)] for part in parts]
            if name == "headers":
                texts = [split_own_backoff(text)[1] for text in texts]
            fields |= {f"{name}_size": list(map(len, texts)), name: b"".join(texts)}
    return fields


def body_members(body: bytes, *, packed: bool) -> dict[str, Any]:
    """The body's member: bytes in msgpack; in JSON text if it is UTF-8, else `body_base64`."""
    name, value = _body_member(body, packed)
    return {name: value}


def _body_member(body: bytes, packed: bool) -> tuple[str, str | bytes]:
    if packed:
        return "body", body
    try:
        return "body", body.decode()
    except UnicodeDecodeError:
        return "body_base64", base64.b64encode(body).decode()


def own_members(record: Record, *, packed: bool) -> dict[str, Any]:
    """The members that are not in the row: the message's own backoff, headers and body."""
    backoff = {"backoff": record.backoff} if record.backoff else {}
    return {**backoff, "headers": record.headers, **body_members(record.body, packed=packed)}


def message_objects(delivery: Delivery, *, packed: bool) -> list[dict[str, Any]]:
    """Messages as objects for JSON and msgpack; a delivery with a lease has receipts."""
    lease, until_ms = delivery.lease, delivery.lease_until_ms
    messages = list(delivery.messages())
    receipts = receipt_texts(lease, [message[0] for message in messages])
    out = []
    for receipt, message in zip(receipts, messages, strict=True):
        _, attempts, deliver_at_ms, priority, record = message
        leased = {"receipt": receipt, "lease_until_ms": until_ms} if lease else {}
        name, body = _body_member(record.body, packed)
        out.append(
            {
                "id": record.id or f"~{receipt[16:]}",
                **leased,
                name: body,
                "deliver_at_ms": deliver_at_ms,
                "attempts": attempts,
                "priority": priority,
                "tags": record.tags,
                "key": record.key or None,
                "headers": record.headers,
            }
        )
    return out
