"""The pause between two releases of due messages.

A release costs a turn of the wheel, a receive, an ack and a new poll, whether it brings one message
or a hundred. So releases take a bounded share of the loop's time. While releases are cheap, they
follow each other closely and messages are only slightly late. When releases are expensive (a busy
machine, due messages in hundreds of topics), the same messages come in fewer, larger receives. The
first release after an idle period never waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SHARE: Final = 0.1
"""Share of the loop's time that releases take while the pause is between its bounds."""
LONGEST_S: Final = 0.008
"""The longest pause: the lateness that a fully loaded loop adds."""
SMOOTHING: Final = 1 / 8
"""Weight of the newest duration, small because one preempted release does not mean load."""


class ReleasePace:
    """The pause between two releases of one loop. All methods belong to the loop's thread."""

    def __init__(self, shortest_s: float, now: Callable[[], float]) -> None:
        """`now` returns the seconds of a steady clock."""
        self.shortest_s = shortest_s
        self._now = now
        self._cost_s = 0.0
        self._next_s = 0.0

    @property
    def left_s(self) -> float:
        """Seconds until the next release may begin; 0 or less if it may begin now."""
        return self._next_s - self._now()

    def released(self, began_s: float) -> None:
        """A release that began at `began_s` has ended."""
        now = self._now()
        self._cost_s += SMOOTHING * (now - began_s - self._cost_s)
        pause_s = min(max(self._cost_s / SHARE, self.shortest_s), LONGEST_S)
        self._next_s = now + pause_s
