"""Who belongs to a cluster, and how many of them decide.

Only 1, 3, 5 and 7 nodes: an even number costs one node more and survives no more failures, and
two survive less than one. Majorities are always of all members; a learner is a member that does
not count, so it makes majorities harder to reach and never easier.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from delaylog.replication.epochs import NODE_MAX
from delaylog.replication.errors import ClusterError

CLUSTER_SIZES: Final = (1, 3, 5, 7)


@dataclass(frozen=True, slots=True)
class Members:
    """The nodes of a cluster by their indexes."""

    nodes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.nodes) not in CLUSTER_SIZES:
            sizes = ", ".join(map(str, CLUSTER_SIZES))
            raise ClusterError(f"a cluster has {sizes} nodes, not {len(self.nodes)}")
        if len(set(self.nodes)) != len(self.nodes):
            raise ClusterError(f"two nodes have the same index: {self.nodes}")
        if not all(0 <= node <= NODE_MAX for node in self.nodes):
            raise ClusterError(f"a node's index is a number from 0 to {NODE_MAX}: {self.nodes}")

    @property
    def majority(self) -> int:
        """How many of them decide."""
        return len(self.nodes) // 2 + 1

    def others(self, node: int) -> tuple[int, ...]:
        """All but one."""
        return tuple(other for other in self.nodes if other != node)

    def reached(self, values: Iterable[int]) -> int:
        """The greatest value that a majority has reached; who is not among the values has 0."""
        ordered = sorted(values, reverse=True)
        return ordered[self.majority - 1] if len(ordered) >= self.majority else 0
