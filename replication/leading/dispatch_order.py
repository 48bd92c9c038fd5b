"""The order in which a serving leader hands out and says so: hand out, advance the tick, publish.

Two kinds of messages become due. Those that the wheel brings up at their time: `begin`, hand
them out, `finish`. And those that were already due by the tick when their frames became committed
(they arrived late, or a predecessor had not come to them): `take` the frames, hand them out by
the clock, `cover` them. A tick is published behind what it speaks of, never before, so whoever
starts from it skips nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from delaylog.replication.watermark import EpochTick


class DispatchOrder:
    """One leadership's tick."""

    def __init__(self, tick: EpochTick, publish: Callable[[EpochTick], None]) -> None:
        self._publish = publish
        self.tick = tick
        """What was published last."""
        self.looked = tick.position
        """Frames below it were taken."""
        self._step: tuple[int, int] | None = None

    def take(self, commit: int) -> tuple[int, int]:
        """The frames that were committed since the last call: (first position, end).

        What of them is due by the tick is handed out now, the rest goes into the wheel.
        """
        start, self.looked = self.looked, max(self.looked, commit)
        return start, self.looked

    def begin(self, second: int, local_index: int) -> None:
        """What is due by this place of the wheel is about to be handed out."""
        assert (second, local_index) >= (self.tick.second, self.tick.local_index), "never back"
        self._step = (second, local_index)

    def finish(self, wall_ms: int) -> None:
        """It was: the tick follows."""
        assert self._step is not None, "begin() comes first"
        second, local_index = self._step
        self._step = None
        tick = self.tick._replace(second=second, local_index=local_index, wall_ms=wall_ms)
        self._put(tick)

    def cover(self, position: int) -> None:
        """Everything below `position` that is due by the tick has been handed out."""
        assert position <= self.looked, "frames are taken first"
        if position > self.tick.position:
            self._put(self.tick._replace(position=position))

    def _put(self, tick: EpochTick) -> None:
        self.tick = tick
        self._publish(tick)
