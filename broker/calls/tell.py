"""Tells the callers of what was merged, each of its own part."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Told(Generic[T]):
    """To be called once the parts may be told, or with what stands in the way."""

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
    """Tell all callers of an error, but those that have gone."""
    for future in futures:
        if not future.done():
            future.set_exception(error)
