"""The tick of a cluster: how far dispatch has got, and under which leadership.

It orders by epoch first. The position it covers is what makes any epoch's tick safe to start from:
every message in the log below it that is due by it has been handed out, and nothing is said of
those behind.
"""

from __future__ import annotations

from typing import NamedTuple

from delaylog.storage.log.frames import Tick


class EpochTick(NamedTuple):
    """(epoch, second, local_index, position): a watermark; the wall time is for alignment only."""

    epoch: int = 0
    second: int = 0
    local_index: int = 0
    position: int = 0
    wall_ms: int = 0

    @property
    def tick(self) -> Tick:
        """Without its epoch, as frames carry it."""
        return Tick(self.second, self.local_index, self.position)

    @property
    def time_ms(self) -> int:
        """The time up to which was dispatched: to the second, finer if the wall time was in it."""
        return self.wall_ms if self.wall_ms // 1000 == self.second else self.second * 1000


NO_TICK = EpochTick()
