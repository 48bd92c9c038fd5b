"""Single messages on their way into one batch, whichever face they came in by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from delaylog.storage.batch import DEFAULT_I64, DEFAULT_U16, Column, encode_send


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
    """Packed; its own backoff in front, if it has one."""
    priority: int = 0
    ttl_ms: int = DEFAULT_I64
    max_retry: int = DEFAULT_U16
    merge: str | None = None
    plain: bool = True
    """Only body and time are set."""


def all_same(values: Sequence[object]) -> bool:
    """Whether all values, of which there is at least one, are the first one."""
    return values.count(values[0]) == len(values)


def plain_wire(bodies: Sequence[bytes], deliver_at_ms: Column) -> bytes:
    """A bulk body of messages of which only body and time are set."""
    sizes = list(map(len, bodies))
    return encode_send(
        {
            "n": len(bodies),
            "deliver_at_ms": deliver_at_ms,
            "body_size": sizes[0] if all_same(sizes) else np.array(sizes, np.int64),
            "bodies": b"".join(bodies),
        }
    )


def build_wire(
    singles: Sequence[Single], now_ms: int, merge: str | None, **scalars: object
) -> bytes:
    """A bulk body of single messages."""
    n = len(singles)
    bodies = [s.body for s in singles]
    columns: dict[str, object] = {
        "n": n,
        "deliver_at_ms": np.array(
            [s.due_ms + now_ms if s.relative else s.due_ms for s in singles], np.int64
        ),
        "body_size": np.array(list(map(len, bodies)), np.int64),
        "bodies": b"".join(bodies),
        **scalars,
    }
    if merge is not None:
        columns["merge"] = merge
    if False in [s.plain for s in singles]:
        for name in ("id", "key", "tags", "headers"):
            values = [getattr(s, name) for s in singles]
            if any(values):
                columns[f"{name}_size"] = np.array([len(v) for v in values], np.int64)
                columns[name] = b"".join(values)
        columns["priority"] = np.array([s.priority for s in singles], np.int64)
        columns["ttl_ms"] = np.array([s.ttl_ms for s in singles], np.int64)
        columns["max_retry"] = np.array([s.max_retry for s in singles], np.int64)
    return encode_send(columns)
