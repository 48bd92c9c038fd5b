"""The oracle: suggests which node should lead.

A suggestion may be wrong or late, and two nodes may be suggested at once; epochs make that
harmless. The oracle is polled, so a lost suggestion does no harm either.
"""

from __future__ import annotations

from typing import Protocol


class LeaderOracle(Protocol):
    """Suggests the leader."""

    def suggests(self, now_ms: int) -> bool:
        """Whether this node should lead now."""

    def leader(self, now_ms: int) -> int | None:
        """The node that probably leads, for clients; None if unknown."""

    def resign(self, now_ms: int, until_ms: int) -> None:
        """This node cannot lead: have another one elected, and stay out until then."""

    def transfer(self, target: int, now_ms: int) -> None:
        """A planned hand-over has begun: have the target elected."""


class StaticOracle:
    """Always suggests the same node: for a cluster of one, or a leader that is set by hand."""

    def __init__(self, node: int, leader: int) -> None:
        self._node = node
        self._leader = leader

    def suggests(self, now_ms: int) -> bool:
        return self._leader == self._node

    def leader(self, now_ms: int) -> int | None:
        return self._leader

    def resign(self, now_ms: int, until_ms: int) -> None:
        """No other node can be elected."""

    def transfer(self, target: int, now_ms: int) -> None:
        self._leader = target
