"""Messages as a receive brings them, made of nothing but keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delaylog.client import Message
from delaylog.client.message import MessageBatch
from delaylog.client.wire.bulk_answers import ReceivedBatch


def received(
    refs: Sequence[int],
    *,
    lease: int = 1,
    lease_ms: int = 10_000,
    keys: Sequence[str] = (),
    tags: Sequence[Sequence[str]] = (),
    attempts: int = 1,
    shard: str = "a",
) -> list[Message]:
    """Messages under one lease from 1,000 ms on; those without a key have ''."""
    n = len(refs)
    key_block = [key.encode() for key in keys] or [b""] * n
    tags_block = ["\n".join(each).encode() for each in tags] or [b""] * n
    none = np.zeros(n, np.int64)
    columns = ReceivedBatch(
        n=n,
        lease=lease,
        lease_until_ms=1_000 + lease_ms,
        now_ms=1_000,
        refs=np.array(refs, np.int64),
        deliver_at_ms=none,
        attempts=np.full(n, attempts, np.uint16),
        body_sizes=none,
        body_block=b"",
        id_sizes=none,
        id_block=b"",
        key_sizes=np.array([len(each) for each in key_block], np.int64),
        key_block=b"".join(key_block),
        tags_sizes=np.array([len(each) for each in tags_block], np.int64),
        tags_block=b"".join(tags_block),
        headers_sizes=none,
        headers_block=b"",
        priority=np.zeros(n, np.int32),
    )
    batch = MessageBatch(columns, "t", None, shard)
    return [Message(batch, row) for row in range(n)]
