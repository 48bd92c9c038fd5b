"""The conditions that a call of an embedded broker can wait for.

A call is a coroutine that decides under the broker's lock and awaits a `Step` where it has to wait.
Its driver then releases the lock and waits: a thread blocks, an event loop runs other tasks. So
each call is written once for both.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any


class Step:
    """Something to wait for. Awaiting it hands it to the driver."""

    __slots__ = ()

    def __await__(self) -> Generator[Step, None, None]:
        yield self


@dataclass(frozen=True, slots=True)
class Safe(Step):
    """The log is safe up to `position`, as the fsync option defines it."""

    position: int


@dataclass(frozen=True, slots=True)
class Begun(Step):
    """A commit up to `position` is requested. The call does not wait for it."""

    position: int


@dataclass(frozen=True, slots=True)
class Job(Step):
    """A call that may block, such as an fsync, has been made. Its errors come out of the await."""

    call: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Pause(Step):
    """Other calls have had their turn, and `seconds` have passed."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class News(Step):
    """A message may have become ready, or `seconds` have passed."""

    seconds: float
