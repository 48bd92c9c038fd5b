"""The order of dispatch on a serving leader: hand out, advance the tick, publish it.

Two kinds of messages become due. Those that the wheel brings up: `begin`, hand them out, `finish`.
And those that were already due by the tick when their frames were committed (they arrived late, or
the previous leader did not reach them): `take` the frames, hand them out by the clock, `cover`
them. A tick is published after the hand-outs that it covers, so a node that starts from it skips
nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from delaylog.replication.watermark import EpochTick


class DispatchOrder:
    """The tick of one leadership."""

    def __init__(self, tick: EpochTick, publish: Callable[[EpochTick], None]) -> None:
        self._publish = publish
        self.tick = tick
        """The tick that was published last."""
        self.looked = tick.position
        """The end of the frames that `take` has returned."""
        self._step: tuple[int, int] | None = None

    def take(self, commit: int) -> tuple[int, int]:
        """The frames that were committed since the last call: (first position, end).

        The caller hands out those that are due by the tick, and puts the rest into the wheel.
        """
        start, self.looked = self.looked, max(self.looked, commit)
        return start, self.looked

    def begin(self, second: int, local_index: int) -> None:
        """The caller is about to hand out what is due by this position of the wheel."""
        assert (second, local_index) >= (self.tick.second, self.tick.local_index), "never back"
        self._step = (second, local_index)

    def finish(self, wall_ms: int) -> None:
        """It was handed out: advance the tick."""
        assert self._step is not None, "begin() comes first"
        second, local_index = self._step
        self._step = None
        tick = self.tick._replace(second=second, local_index=local_index, wall_ms=wall_ms)
        self._put(tick)

    def cover(self, position: int) -> None:
        """Everything before `position` that is due by the tick was handed out."""
        assert position <= self.looked, "frames are taken first"
        if position > self.tick.position:
            self._put(self.tick._replace(position=position))

    def _put(self, tick: EpochTick) -> None:
        self.tick = tick
        self._publish(tick)
