"""How much log a leader keeps for its followers, beyond what it needs itself.

A follower that is less than `LOG_KEPT_BYTES` behind catches up from the log, so the log from its
position on is kept. A follower that is further behind gets a copy of the folder instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from delaylog.replication.leading.leader import Leader

LOG_KEPT_BYTES: Final = 1 << 30
"""Most log that is kept for followers after a checkpoint has made it superfluous."""


def log_needed(
    positions: Iterable[int], *, first: int, end: int, kept_bytes: int = LOG_KEPT_BYTES
) -> int:
    """The first position that followers need of a log from `first` to `end`.

    `positions` = the known end of each follower's log.
    """
    near = (at for at in positions if first <= at and end - at <= kept_bytes)
    return min(near, default=end)


class FollowerPositions:
    """The assumed ends of the followers' logs: from HELLO, until a leader knows better."""

    def __init__(self, first: int) -> None:
        """`first` = first position of this node's log, assumed of nodes that have not connected."""
        self._first = first
        self._stated: dict[int, int] = {}

    def heard(self, peer: int, end: int) -> None:
        """A node has said where its log ends."""
        self._stated[peer] = end

    def of(self, leader: Leader) -> list[int]:
        """The positions of all followers."""
        return [
            one.match or self._stated.get(peer, self._first)
            for peer, one in leader.progress.items()
        ]
