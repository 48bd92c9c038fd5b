"""Turns of the loop, shared: large sends leave turns to the single ones that come beside them.

A batch over a thousand hours takes milliseconds. When six connections send such batches, all of
them would be applied in one turn, and a single send beside them would wait for that turn, and for
the next ones with its answer. While nobody else sends, large sends wait for nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

GAP_TURNS: Final = 4
"""Turns between two large sends: as many as a single send takes from its socket to the log. One
without anything to do takes 20 us."""
BESIDE_SECONDS: Final = 1.0
"""How long after a single send the next one is expected."""


class TurnShares:
    """Lets large sends pass one by one, in the order in which they came."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` = seconds of a steady clock."""
        self._now = now
        self._expected_until = 0.0
        self._busy = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    def single(self) -> None:
        """A single send comes by."""
        self._expected_until = self._now() + BESIDE_SECONDS

    async def large(self) -> None:
        """Wait for a turn; what the caller does up to its next wait is the large send."""
        if not self._waiting and self._now() > self._expected_until:
            return
        loop = asyncio.get_running_loop()
        if self._busy:
            mine = loop.create_future()
            self._waiting.append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if not mine.cancelled():
                    # Its turn had come already.
                    self._pass()
                raise
        self._busy = True
        loop.call_soon(self._rest, GAP_TURNS)

    def _rest(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._rest, turns - 1)
        else:
            self._pass()

    def _pass(self) -> None:
        """The next one's turn, if there is one: `_busy` stays."""
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        self._busy = False
