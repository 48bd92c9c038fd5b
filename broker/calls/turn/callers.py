"""The callers of one merged call: each gets its own part of the result."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Callers(Generic[T]):
    """A callback: called with None once the callers may be answered, or with their error."""

    __slots__ = ("_futures", "_parts")

    def __init__(self, futures: Sequence[asyncio.Future[T]], parts: Iterable[T]) -> None:
        self._futures = futures
        self._parts = parts

    def __call__(self, error: BaseException | None) -> None:
        if error is not None:
            refuse(self._futures, error)
            return
        for future, part in zip(self._futures, self._parts, strict=True):
            if not future.done():
                future.set_result(part)


def refuse(futures: Iterable[asyncio.Future[T]], error: BaseException) -> None:
    """Answer all callers with an error, except those that were cancelled."""
    for future in futures:
        if not future.done():
            future.set_exception(error)
