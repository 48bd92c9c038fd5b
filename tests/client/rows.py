"""Messages as a receive brings them, made of nothing but keys."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from delaylog.client import Message
from delaylog.client.message import MessageBatch
from delaylog.client.wire.bulk import ReceivedBatch, all_of


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
    none = all_of(0, "<i8", n)
    columns = ReceivedBatch(
        n=n,
        lease=lease,
        lease_until_ms=1_000 + lease_ms,
        now_ms=1_000,
        refs=array("q", refs),
        deliver_at_ms=none,
        attempts=all_of(attempts, "<u2", n),
        body_sizes=none,
        body_block=b"",
        id_sizes=none,
        id_block=b"",
        key_sizes=array("H", map(len, key_block)),
        key_block=b"".join(key_block),
        tags_sizes=array("H", map(len, tags_block)),
        tags_block=b"".join(tags_block),
        headers_sizes=none,
        headers_block=b"",
        priority=all_of(0, "<i4", n),
    )
    batch = MessageBatch(columns, "t", None, shard)
    return [Message(batch, row) for row in range(n)]
