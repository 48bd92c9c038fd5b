"""The broker's clock: wall time in ms that never runs backwards.

After a backward step it holds until wall time has caught up; steps in either direction beyond a
bound are counted and reported, so an operator can see why deliveries wait or rush.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

STEP_MS: Final = 2_000
"""A difference between wall and monotonic progress beyond this is a step, not drift."""


class BrokerClock:
    """Milliseconds since the epoch, monotone."""

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        on_step: Callable[[int], None] = lambda step_ms: None,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._on_step = on_step
        self._last_ms = int(wall() * 1000)
        self._offset_ms = wall() * 1000 - monotonic() * 1000
        self.steps = 0

    def now_ms(self) -> int:
        """Wall time, or the latest it has been."""
        wall_ms = self._wall() * 1000
        offset = wall_ms - self._monotonic() * 1000
        if abs(offset - self._offset_ms) > STEP_MS:
            self.steps += 1
            self._on_step(int(offset - self._offset_ms))
        self._offset_ms = offset
        self._last_ms = max(self._last_ms, int(wall_ms))
        return self._last_ms

    @property
    def held_ms(self) -> int:
        """By how much the clock stands ahead of wall time after a backward step."""
        return max(self._last_ms - int(self._wall() * 1000), 0)
