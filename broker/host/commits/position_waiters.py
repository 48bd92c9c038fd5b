"""Who waits for a position of the log, in the order of positions.

What a position has to be reached by (this node's disk, a quorum, every node) is the owner's
affair: there is one of these for each. Whoever waits is told exactly once, that it is reached or
why it will not be.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

Told: TypeAlias = Callable[[BaseException | None], None]
"""Called with None once the position is reached, with the error if the wait has failed."""


class PositionWaiters:
    """Calls that wait for positions."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Told]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, position: int, call: Told) -> None:
        """Call back once `position` is reached; of one position, who came first is told first."""
        waiting = self._waiting
        if waiting and waiting[-1][0] > position:
            # A reader that saw less than the newest writer: keep the order of positions.
            at = next(i for i, item in enumerate(waiting) if item[0] > position)
            waiting.insert(at, (position, call))
        else:
            waiting.append((position, call))

    async def wait(self, position: int) -> None:
        """Wait until `position` is reached; raises the error if the wait has failed."""
        await told(lambda call: self.add(position, call))

    def remove(self, position: int, call: Told) -> None:
        """This one waits no longer, and is not told."""
        self._waiting.remove((position, call))

    def reach(self, position: int) -> None:
        """Everything up to `position` is reached: tell who waited for it."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= position:
            waiting.popleft()[1](None)

    def fail_all(self, error: BaseException) -> None:
        """Nobody's position will be reached: tell all who wait now, not who comes later."""
        waiting, self._waiting = self._waiting, deque()
        for _, call in waiting:
            call(error)


async def told(ask: Callable[[Told], None]) -> None:
    """Ask for a call back and wait for it; raises the error that it is told."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ask(partial(finish, future))
    await future


def finish(future: asyncio.Future[None], error: BaseException | None = None) -> None:
    """Tell whoever waits for a future, if anybody still does."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
