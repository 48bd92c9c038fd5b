"""The oracle: suggests which node should lead.

A suggestion may be wrong or late, and two nodes may be suggested at once; epochs make that
harmless. The oracle is polled, so a lost suggestion does no harm either.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class LogState(NamedTuple):
    """How complete a node's log is: an oracle prefers the greatest."""

    last_epoch: int = 0
    end: int = 0


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
