"""Askers of merged calls: each is told its own part of the result, or refused alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

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
