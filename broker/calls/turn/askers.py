"""What is merged: the parts of a send, which become one batch, and the askers of merged calls.

A part has the messages of one caller, from any interface. Each asker is told its own part of the
result, or refused alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from delaylog.storage.messages.batch import (
    Column,
    MessageBatch,
    Single,
    batch_of_columns,
    columns_of,
    encode_send,
    join_batches,
    requested_times,
)

# --------------------------------------------------------------------------------------- askers

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Asker(Protocol[T_contra]):
    """One caller of a merged call. It is told or refused exactly once."""

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the result any more."""

    def tell(self, result: T_contra) -> None:
        """Take the result."""

    def refuse(self, error: BaseException) -> None:
        """Take the error instead."""


class Awaited(Generic[T]):
    """An asker that a coroutine awaits."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    @property
    def gone(self) -> bool:
        """Whether the coroutine was cancelled."""
        return self.future.done()

    def tell(self, result: T) -> None:
        """Take the result, unless the coroutine was cancelled."""
        if not self.future.done():
            self.future.set_result(result)

    def refuse(self, error: BaseException) -> None:
        """Take the error, unless the coroutine was cancelled."""
        if not self.future.done():
            self.future.set_exception(error)


class SharedResult(Generic[T]):
    """The callback of a commit: tells each asker its part of the result, or all the error."""

    __slots__ = ("_askers", "_parts")

    def __init__(self, askers: Sequence[Asker[T]], parts: Iterable[T]) -> None:
        self._askers = askers
        self._parts = parts

    def __call__(self, error: BaseException | None) -> None:
        if error is not None:
            refuse(self._askers, error)
            return
        for asker, part in zip(self._askers, self._parts, strict=True):
            asker.tell(part)


def refuse(askers: Iterable[Asker[T]], error: BaseException) -> None:
    """Refuse all askers with one error."""
    for asker in askers:
        asker.refuse(error)


# ----------------------------------------------------------------------- parts of a merged send

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
