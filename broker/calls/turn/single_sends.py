"""The parts of a merged send, from any interface, and how they become one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar, cast

import numpy as np

from delaylog.storage.messages.batch import (
    Column,
    MessageBatch,
    batch_of_columns,
    encode_send,
    join_batches,
)
from delaylog.storage.messages.singles import Single, columns_of, requested_times

Item = TypeVar("Item")


Part: TypeAlias = Single | MessageBatch
"""The messages of one caller."""


def batch_of(parts: Sequence[Part], now_ms: int) -> MessageBatch:
    """One batch of alike parts: single messages of one `merge`, or batches of one shape."""
    first = parts[0]
    if isinstance(first, Single):
        singles = cast("Sequence[Single]", parts)
        batch = batch_of_columns(columns_of(singles, requested_times(singles, now_ms), first.merge))
        batch.texts_checked = True
        return batch
    return join_batches(cast("Sequence[MessageBatch]", parts))


def all_same(values: Sequence[object]) -> bool:
    """Whether all values are equal; there must be at least one."""
    return values.count(values[0]) == len(values)


def plain_wire(bodies: Sequence[bytes], deliver_at_ms: Column) -> bytes:
    """A bulk body of messages that have only a body and a time."""
    sizes = list(map(len, bodies))
    return encode_send(
        {
            "n": len(bodies),
            "deliver_at_ms": deliver_at_ms,
            "body_size": sizes[0] if all_same(sizes) else np.array(sizes, np.int64),
            "bodies": b"".join(bodies),
        }
    )


def frames(
    items: Iterable[Item], bytes_max: int, rows_max: int, part_of: Callable[[Item], Part]
) -> Iterator[list[Item]]:
    """Runs of items that may share a frame: with the same `merge`, within the given limits."""
    some: list[Item] = []
    size = rows = 0
    merge = None
    for item in items:
        part = part_of(item)
        size, rows = size + part.size_bytes, rows + part.n
        if some and (part.merge != merge or size > bytes_max or rows > rows_max):
            yield some
            some, size, rows = [], part.size_bytes, part.n
        merge = part.merge
        some.append(item)
    if some:
        yield some
