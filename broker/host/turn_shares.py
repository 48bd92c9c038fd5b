"""Shares turns of the loop: large sends and background slices leave turns to small calls.

A batch over a thousand hours, or a slice of background work, takes milliseconds. A delivery or a
single send takes some turns from its timer or socket to its answer. If each of these turns held a
large piece of other work, the small call would wait for all of them; so a piece is followed by
turns without one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

GAP_TURNS: Final = 4
"""Turns between two large pieces: a single send takes this number from its socket to the log, and a
delivery from its due time to its answer. An empty turn takes 20 us."""
BESIDE_SECONDS: Final = 1.0
"""After a single send, another one is expected for this time."""


class Turnstile:
    """Lets its callers pass one by one, in order of arrival, with a gap after each."""

    def __init__(self, now: Callable[[], float], *, gap_s_max: float = inf) -> None:
        """`now` returns the seconds of a steady clock; a gap ends after `gap_s_max`, so that the
        callers keep a share of a loop whose turns are long.
        """
        self._now, self._gap_s_max = now, gap_s_max
        self._gap_until = 0.0
        self._busy = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def crowded(self) -> bool:
        """Whether somebody waits to pass."""
        return bool(self._waiting)

    async def pass_one(self) -> None:
        """Wait for a turn. The caller must do its piece of work before it waits again."""
        loop = asyncio.get_running_loop()
        if self._busy:
            mine = loop.create_future()
            self._waiting.append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if not mine.cancelled():
                    # This caller had its turn already: pass the turn on.
                    self._pass()
                raise
        self._busy = True
        loop.call_soon(self._begin_gap)

    def _begin_gap(self) -> None:
        """In the turn behind the piece of work, which is the first one of the gap."""
        self._gap_until = self._now() + self._gap_s_max
        self._rest(GAP_TURNS)

    def _rest(self, turns: int) -> None:
        if turns and self._now() < self._gap_until:
            asyncio.get_running_loop().call_soon(self._rest, turns - 1)
        else:
            self._pass()

    def _pass(self) -> None:
        """Give the turn to the next caller; `_busy` becomes False if there is none."""
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        self._busy = False


class TurnShares:
    """Lets large sends pass one by one while single sends are expected."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns the seconds of a steady clock."""
        self._now = now
        self._expected_until = 0.0
        self._stile = Turnstile(now)

    def note_single_send(self) -> None:
        """A single send has arrived."""
        self._expected_until = self._now() + BESIDE_SECONDS

    async def wait_for_turn(self) -> None:
        """Wait for a turn. The caller must do its large send before it waits again."""
        if self._stile.crowded or self._now() <= self._expected_until:
            await self._stile.pass_one()
