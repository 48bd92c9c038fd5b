"""How much log a leader keeps for others, beyond what it needs itself.

A follower that is a little behind goes on by itself as long as its place is still held; one that
is further behind gets a copy of the folder, so nothing is held for it. Nobody can make a leader
hold more than `LOG_KEPT_BYTES`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from delaylog.replication.leading.leader import Leader

LOG_KEPT_BYTES: Final = 1 << 30
"""Log that a checkpoint has made superfluous is kept for slower followers up to this."""


def log_needed(
    places: Iterable[int], *, first: int, end: int, kept_bytes: int = LOG_KEPT_BYTES
) -> int:
    """From where on others need a log that is held from `first` to `end`.

    `places` = up to where each of them is known to hold it.
    """
    near = (at for at in places if first <= at and end - at <= kept_bytes)
    return min(near, default=end)


class FollowerPositions:
    """Up to where others are thought to hold the log: as they said, until a leader knows better."""

    def __init__(self, first: int) -> None:
        """`first` = where this node's log begins: the place of those who have not been heard."""
        self._first = first
        self._said: dict[int, int] = {}

    def heard(self, peer: int, end: int) -> None:
        """A node has said where its log ends."""
        self._said[peer] = end

    def of(self, leader: Leader) -> list[int]:
        """The places of all followers."""
        return [
            one.match or self._said.get(peer, self._first) for peer, one in leader.progress.items()
        ]
