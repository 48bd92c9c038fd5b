"""Shares turns of the loop: large sends leave turns to concurrent single sends.

A batch over a thousand hours takes milliseconds. If six connections send such batches, all of
them would be applied in one turn. A concurrent single send would wait for that turn, and its answer
for the next turns. While there are no single sends, large sends do not wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

GAP_TURNS: Final = 4
"""Turns between two large sends: a single send takes this number from its socket to the log. An
empty turn takes 20 us."""
BESIDE_SECONDS: Final = 1.0
"""After a single send, another one is expected for this time."""


class TurnShares:
    """Lets large sends pass one by one, in order of arrival."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns the seconds of a steady clock."""
        self._now = now
        self._expected_until = 0.0
        self._busy = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    def note_single_send(self) -> None:
        """A single send has arrived."""
        self._expected_until = self._now() + BESIDE_SECONDS

    async def wait_for_turn(self) -> None:
        """Wait for a turn. The caller must do its large send before it waits again."""
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
                    # This send had its turn already: pass the turn on.
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
        """Give the turn to the next waiting send; `_busy` becomes False if there is none."""
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        self._busy = False
