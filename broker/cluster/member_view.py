"""What the parts of a member see of it. A part that needs more extends this protocol itself.

`ClusterMember` imports its parts, so they know it by this protocol only: imports go one way. What
stands outside a member (operator calls, metrics, elections) imports `ClusterMember`. Its counters,
for metrics, are here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from delaylog.broker.cluster.config import ClusterConfig
from delaylog.broker.cluster.member_files import MemberFiles
from delaylog.broker.cluster.members.node_status import Statuses
from delaylog.broker.cluster.peers import Transport
from delaylog.broker.host.machine import Machine
from delaylog.broker.host.node import Node
from delaylog.replication.node import ReplicationNode


class MemberView(Protocol):
    """The state of a member that several of its parts read."""

    file: ClusterConfig
    """The cluster file: where this node listens."""
    machine: Machine
    statuses: Statuses
    """The newest status of each connected peer."""
    transport: Transport

    @property
    def config(self) -> ClusterConfig:
        """The cluster file with the members that the log knows."""

    @property
    def files(self) -> MemberFiles:
        """The open files; a copy of the leader's folder replaces them."""

    @property
    def node(self) -> Node:
        """The broker's node, with the engine."""

    @property
    def replication(self) -> ReplicationNode | None:
        """None until the node has joined, and while its folder is being replaced."""

    @property
    def leading(self) -> bool:
        """Whether the engine leads."""

    def may_append(self) -> bool:
        """Whether replication takes changes at this moment."""


@dataclass(slots=True)
class MemberCounts:
    """What happened to a member since its start."""

    chosen: int = 0
    """Times the election chose this node."""
    leaderships: int = 0
    """Times it began to serve as the leader."""
    resigned: int = 0
    """Times it was chosen and did not serve in time."""
    handed_over: int = 0
    handovers_failed: int = 0
    lost_commits: int = 0
    """Times a leader lacked frames that were committed here, which quarantines this node."""
    refused_epochs: int = 0
    """Messages of an epoch below the promised one, such as those of a leader that was stopped."""
