"""The broker's clock: wall time in ms that never runs backwards by itself.

After a backward step of the wall clock, the broker's clock stops until wall time has caught up, or
until an operator confirms the step (`accept`). It follows a forward step at once. Steps in either
direction are counted and reported, so that an operator can see why deliveries are late or early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from delaylog.broker.host.machine import REAL

STEP_MS: Final = 2_000
"""A difference between wall and monotonic progress beyond this is a step, not drift."""

_READ_MS_MAX: Final = 100


class Clock(Protocol):
    """The clock of a node: `BrokerClock`, or one that a program moves."""

    steps: int

    def now_ms(self) -> int:
        """The time in ms since 1970. It goes back only by `accept`."""

    def hold_from(self, ms: int) -> None:
        """Do not go below `ms`, the time of an earlier run on the same folder."""

    @property
    def wall_ms(self) -> int:
        """The time of the wall clock."""

    @property
    def wall_us(self) -> int:
        """The same in microseconds."""

    @property
    def ahead_ms(self) -> int:
        """How far this clock is ahead of the wall clock."""

    def accept(self) -> int:
        """Go back to the wall clock's time; return the change in ms (0 or negative)."""


class BrokerClock:
    """Milliseconds since the epoch, monotone but for `accept`."""

    def __init__(
        self,
        *,
        wall: Callable[[], float] = REAL.wall_s,
        monotonic: Callable[[], float] = REAL.steady_s,
        on_step: Callable[[int], None] = lambda step_ms: None,
        on_jump: Callable[[int], None] = lambda jump_ms: None,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self.on_step = on_step
        """Called with every step of the wall clock, in ms."""
        self.on_jump = on_jump
        """Called when the broker's time jumped ahead, with the jump minus the time passed, in ms.
        """
        self._last_ms = int(wall() * 1000)
        self._last_monotonic_ms = monotonic() * 1000
        self._offset_ms = wall() * 1000 - self._last_monotonic_ms
        self.steps = 0

    def hold_from(self, ms: int) -> None:
        """Never return a time before `ms`, which an earlier run of the broker has reached."""
        self._last_ms = max(self._last_ms, ms)

    def now_ms(self) -> int:
        """Wall time, or the latest time returned so far if that is later."""
        wall_ms = self._wall() * 1000
        monotonic_ms = self._monotonic() * 1000
        offset = wall_ms - monotonic_ms
        step = offset - self._offset_ms
        if not -STEP_MS <= step <= STEP_MS:
            # The process may have been paused between the two readings.
            wall_ms, monotonic_ms = self._read()
            offset = wall_ms - monotonic_ms
            step = offset - self._offset_ms
        self._offset_ms = offset
        before, passed = self._last_ms, monotonic_ms - self._last_monotonic_ms
        self._last_monotonic_ms = monotonic_ms
        now_ms = int(wall_ms)
        if now_ms > before:
            self._last_ms = now_ms
        if not -STEP_MS <= step <= STEP_MS:
            self.steps += 1
            self.on_step(int(step))
            jump = self._last_ms - before - passed
            if jump > STEP_MS:
                self.on_jump(int(jump))
        return self._last_ms

    def _read(self) -> tuple[float, float]:
        """Wall and monotonic ms of one moment.

        The two clocks are read again if the process was paused between the readings.
        """
        while True:
            before = self._monotonic() * 1000
            wall_ms = self._wall() * 1000
            after = self._monotonic() * 1000
            if after - before <= _READ_MS_MAX:
                return wall_ms, after

    @property
    def wall_ms(self) -> int:
        """Wall time of the system, in ms."""
        return int(self._wall() * 1000)

    @property
    def wall_us(self) -> int:
        """Wall time of the system, in microseconds."""
        return int(self._wall() * 1_000_000)

    @property
    def ahead_ms(self) -> int:
        """How far this clock is ahead of wall time after a backward step; `held_ms` in the API."""
        return max(self._last_ms - self.wall_ms, 0)

    def accept(self) -> int:
        """Go back to wall time; returns the change in ms (0 or negative)."""
        before = self.now_ms()
        self._last_ms = min(before, self.wall_ms)
        return self._last_ms - before
