"""Callbacks that wait for a position of the log, in order of position.

The owner decides what has to reach the position (this node's disk, a quorum, every node) and keeps
one `PositionWaiters` for each. Each callback is called exactly once: when its position is reached,
or with the error if it will not be.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

Completion: TypeAlias = Callable[[BaseException | None], None]
"""Called with None once the position is reached, with the error if the wait has failed."""


class PositionWaiters:
    """Calls that wait for positions."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Completion]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, position: int, call: Completion) -> None:
        """Call back once `position` is reached; first come first served among equal positions."""
        waiting = self._waiting
        if waiting and waiting[-1][0] > position:
            # A reader may wait for an older position than the newest writer: keep the order.
            at = next(i for i, item in enumerate(waiting) if item[0] > position)
            waiting.insert(at, (position, call))
        else:
            waiting.append((position, call))

    async def wait(self, position: int) -> None:
        """Wait until `position` is reached; raises the error if the wait has failed."""
        await until_called(lambda call: self.add(position, call))

    def remove(self, position: int, call: Completion) -> None:
        """Remove a callback without calling it."""
        self._waiting.remove((position, call))

    def reach(self, position: int) -> None:
        """The log has reached `position`: call the callbacks that waited for it."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= position:
            waiting.popleft()[1](None)

    def fail_all(self, error: BaseException) -> None:
        """Call all present callbacks with `error`, but none that are added later."""
        waiting, self._waiting = self._waiting, deque()
        for _, call in waiting:
            call(error)


async def until_called(ask: Callable[[Completion], None]) -> None:
    """Pass a callback to `ask` and wait for its call; raises the error that it is called with."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ask(partial(finish, future))
    await future


def finish(future: asyncio.Future[None], error: BaseException | None = None) -> None:
    """Resolve a future, unless it is done or cancelled already."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
