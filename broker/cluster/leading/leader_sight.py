"""Which node leads, as far as this node knows: clients are sent there.

The node whose frames were taken most recently leads. The oracle is asked only without one: it may
learn of an election later, or name a node that does not serve yet. Calls wait through a short
change of leaders.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delaylog.broker.cluster.leading.gate_waiters import GateWaiters

FOLLOWED_MS: Final = 250
"""How long a leader counts as such after its last message (it sends a round every 50 ms), and how
long it counts itself as followed after a majority's last answers."""


class LeaderSight:
    """The view of one node."""

    def __init__(
        self,
        node: int,
        boot_ms: Callable[[], int],
        *,
        leads: Callable[[], bool],
        chosen: Callable[[], int | None],
        knows: Callable[[int], bool] = lambda _: True,
        stretch: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """`leads` = whether this node leads; `chosen` = the oracle's choice; `knows` = whether a
        node is a known member: one that is behind in the log may not know the leader yet;
        `stretch` = the factor by which a busy machine stretches silences.
        """
        self._node = node
        self._boot_ms = boot_ms
        self._knows = knows
        self._stretch = stretch
        self._leads = leads
        self._chosen = chosen
        self._followed: int | None = None
        self._followed_ms = -FOLLOWED_MS
        self._waiters = GateWaiters()

    def follow(self, leader: int) -> None:
        """Frames of the promised epoch came from `leader`."""
        self._followed, self._followed_ms = leader, self._boot_ms()

    @property
    def followed(self) -> tuple[int | None, int]:
        """The node whose frames of the promised epoch came last, and when."""
        return self._followed, self._followed_ms

    @property
    def leader(self) -> int | None:
        """The index of the leader; None if none is known."""
        if self._leads():
            return self._node
        recent = self._boot_ms() - self._followed_ms < FOLLOWED_MS * self._stretch()
        found = self._followed if recent else self._chosen()
        if found is None or found == self._node or not self._knows(found):
            return None
        return found

    @property
    def other(self) -> int | None:
        """The leader, if it is another node."""
        leader = self.leader
        return None if leader == self._node else leader

    async def wait(self, seconds: float) -> None:
        """Wait until `settle` is called, at most `seconds`."""
        await self._waiters.wait(seconds)

    @property
    def waited_for(self) -> bool:
        """Whether a call waits."""
        return len(self._waiters) > 0

    def settle(self) -> None:
        """Release the waiting calls: a leader is known."""
        self._waiters.open()
