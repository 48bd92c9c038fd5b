"""Release due messages when the wheel says so, at the pace that the loop can afford.

One timer is set to the next moment at which a message becomes due. Code that changes that moment (a
send, a commit, a step of the clock) calls `run` or `kick`, which set the timer again. A release
that leaves due messages continues in the next turn of the loop, so that requests run in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node

# The pause between two releases of due messages.
#
# A release costs a turn of the wheel, a receive, an ack and a new poll, whether it brings one
# message or a hundred. So releases take a bounded share of the loop's time. While releases are
# cheap, they follow each other closely and messages are only slightly late. When releases are
# expensive (a busy machine, due messages in hundreds of topics), the same messages come in fewer,
# larger receives. The first release after an idle period never waits.

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


RELEASE_PACE_SECONDS: Final = 0.002
"""Shortest time between two releases while messages become due all the time."""
AHEAD_WAKE_MS: Final = 20
"""Poll interval while wall time was set back and the broker's clock waits for it."""


class ReleaseTimer:
    """The releases of one node. All methods belong to the loop's thread."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._kicked = False
        self.holds_back = False
        """Whether due messages wait for the pause between two releases."""
        self.pace = ReleasePace(RELEASE_PACE_SECONDS, node.machine.steady_s)

    def kick(self) -> None:
        """Run in the next turn of the loop."""
        if not self._kicked:
            self._kicked = True
            self._loop.call_soon(self._run_kicked)

    def cancel(self) -> None:
        """Cancel the timer; the next run sets it again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def run(self, *, unpaced: bool = False) -> None:
        """Release due messages and set the timer for the next ones.

        `unpaced` ignores the pause since the last release, for a receive that should not wait.
        """
        node = self._node
        if not node.may_release:
            return
        engine = node.engine
        now_ms = node.clock.now_ms()
        try:
            if unpaced:
                # The log thread may have committed more than the loop has noticed.
                engine.commit(node.log_commits.position(), now_ms)
            wake_ms = engine.next_wake_ms()
            due = wake_ms is not None and wake_ms <= now_ms
            self.holds_back = due and not unpaced and self.pace.left_s > 0
            if due and not self.holds_back:
                began_s = node.machine.steady_s()
                wake_ms = engine.turn(now_ms)
                if wake_ms is not None and wake_ms <= now_ms:
                    self.kick()
                else:
                    self.pace.released(began_s)
                if engine.state.log.pending_size:
                    node.appended()
            node.released()
        except Exception as error:
            node.fail(error)
            return
        if wake_ms is None or self._kicked or self._is_set(wake_ms, now_ms):
            return
        if node.role.leading:
            self._arm(wake_ms, now_ms)

    def _run_kicked(self) -> None:
        self._kicked = False
        self.run()

    def _fired(self) -> None:
        self._timer = None
        self.run()

    def _is_set(self, wake_ms: int, now_ms: int) -> bool:
        """Whether the timer is set and fires by `wake_ms`."""
        return self._timer is not None and now_ms < self._timer_ms <= wake_ms

    def _arm(self, wake_ms: int, now_ms: int) -> None:
        if wake_ms - now_ms <= LONGEST_S * 1000 and (pause_s := self.pace.left_s) > 0:
            wake_ms = max(wake_ms, now_ms + ceil(pause_s * 1000))
            if self._is_set(wake_ms, now_ms):
                return
        self.cancel()
        self._timer_ms = wake_ms
        # While the clock waits for wall time, it may stay just before the due time for a day.
        least_ms = AHEAD_WAKE_MS if self._node.clock.ahead_ms else 1
        delay = min(max(wake_ms - now_ms, least_ms), 60_000) / 1000
        self._timer = self._loop.call_later(delay, self._fired)
