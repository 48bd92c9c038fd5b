"""Who leads, as far as this node sees it: for clients that are to be sent there.

Whose frames were taken a moment ago leads; the oracle may be told by an election later, or think
so of a node that has not come to serve. Calls wait through a change of leaders that is short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delaylog.broker.cluster.boot_clock import boot_ms
from delaylog.broker.cluster.leading.gate_waiters import GateWaiters

FOLLOWED_MS: Final = 250
"""So long after its last message a leader is taken for one; it has rounds every 50 ms. And so long
after the last answers of a majority it takes itself for one."""


class LeaderSight:
    """What one node sees."""

    def __init__(
        self,
        node: int,
        *,
        leads: Callable[[], bool],
        chosen: Callable[[], int | None],
        knows: Callable[[int], bool] = lambda _: True,
    ) -> None:
        """`leads` = whether this node does; `chosen` = whom the oracle thinks to lead; `knows` =
        whether a node is a known member: who is behind in the log may not know the leader yet.
        """
        self._node = node
        self._knows = knows
        self._leads = leads
        self._chosen = chosen
        self._followed: int | None = None
        self._followed_ms = -FOLLOWED_MS
        self._waiters = GateWaiters()

    def follow(self, leader: int) -> None:
        """Frames of the promised epoch came from this node."""
        self._followed, self._followed_ms = leader, boot_ms()

    @property
    def followed(self) -> tuple[int | None, int]:
        """Whose frames of the promised epoch came last, and when."""
        return self._followed, self._followed_ms

    @property
    def leader(self) -> int | None:
        """Who leads, if anybody is known to."""
        if self._leads():
            return self._node
        recent = boot_ms() - self._followed_ms < FOLLOWED_MS
        found = self._followed if recent else self._chosen()
        if found is None or found == self._node or not self._knows(found):
            return None
        return found

    @property
    def other(self) -> int | None:
        """Another node that leads."""
        leader = self.leader
        return None if leader == self._node else leader

    async def wait(self, seconds: float) -> None:
        """Wait until `settle` is called, so long at most."""
        await self._waiters.wait(seconds)

    @property
    def waited_for(self) -> bool:
        """Whether anybody waits."""
        return len(self._waiters) > 0

    def settle(self) -> None:
        """It is clear now who answers."""
        self._waiters.open()
