"""Who should lead: a suggestion, never a fact.

An oracle may be wrong, late, or name two nodes at once; epochs make that harmless. It is asked
again and again and says how things stand, so that a word that was lost does no harm either.
"""

from __future__ import annotations

from typing import Protocol


class LeaderOracle(Protocol):
    """Suggests who leads."""

    def suggests(self, now_ms: int) -> bool:
        """Whether this node should lead, as things stand."""

    def leader(self, now_ms: int) -> int | None:
        """Who is thought to lead, for clients; None if nobody is known to."""

    def resign(self, now_ms: int, until_ms: int) -> None:
        """This node cannot lead: let another one be chosen, and stay out until then."""

    def transfer(self, target: int, now_ms: int) -> None:
        """A planned hand-over has begun: make the oracle agree with it."""


class StaticOracle:
    """Always the same node: a cluster of one, or a leader set by hand. Time does not matter."""

    def __init__(self, node: int, leader: int) -> None:
        self._node = node
        self._leader = leader

    def suggests(self, now_ms: int) -> bool:
        return self._leader == self._node

    def leader(self, now_ms: int) -> int | None:
        return self._leader

    def resign(self, now_ms: int, until_ms: int) -> None:
        """Nobody else can be chosen."""

    def transfer(self, target: int, now_ms: int) -> None:
        self._leader = target
