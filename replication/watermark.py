"""The tick of a cluster: the watermark of dispatch, and its epoch.

Ticks are ordered by epoch first. A leader can start from the tick of any epoch because of the
position that it covers: every message before that position that is due by the tick was handed out;
it states nothing about later messages.
"""

from __future__ import annotations

from typing import NamedTuple

from delaylog.storage.log.frames import Tick


class EpochTick(NamedTuple):
    """The watermark (epoch, second, local_index, position); the wall time only refines it."""

    epoch: int = 0
    second: int = 0
    local_index: int = 0
    position: int = 0
    wall_ms: int = 0

    @property
    def tick(self) -> Tick:
        """The tick without its epoch, as frames carry it."""
        return Tick(self.second, self.local_index, self.position)

    @property
    def time_ms(self) -> int:
        """The time of the watermark: the second, or the wall time if it is in that second."""
        return self.wall_ms if self.wall_ms // 1000 == self.second else self.second * 1000


NO_TICK = EpochTick()
