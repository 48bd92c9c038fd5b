"""The configuration of a cluster: its voters, learners and removed nodes, and majorities of them.

A configuration is part of the log: every EPOCH_BEGIN frame carries that of its epoch, so it is
committed, cut and copied like any frame. It changes by joint consensus (Ongaro, Ousterhout, "In
Search of an Understandable Consensus Algorithm", section 6): the epoch of a change needs majorities
of the voters before and after it, and the next epoch only a majority of the voters after it.

Version 0 is the founding configuration. It is in no frame, but in each node's meta file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, TypeAlias

import msgpack

from delaylog.replication.errors import ClusterError
from delaylog.storage.layout import EPOCH_NODE_BITS
from delaylog.storage.messages.batch import Block

NODE_MAX: Final = (1 << EPOCH_NODE_BITS) - 1
CLUSTER_SIZES: Final = (1, 3, 5, 7)
"""Sizes of a new cluster: an even number costs one more node and survives no more failures."""
VOTERS_MAX: Final = 7
CLUSTER_ID_SIZE: Final = 16

Contact: TypeAlias = dict[str, str]
"""The addresses of a node, with keys of the host; replication only stores them."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The nodes of a cluster by their indexes, each list in ascending order."""

    voters: tuple[int, ...]
    """The voting members; one of them leads. Empty while this node knows of no cluster."""
    outgoing: tuple[int, ...] = ()
    """The previous voters, while a change is in progress: a majority of them is needed too."""
    learners: tuple[int, ...] = ()
    """Nodes that get the log and do not vote."""
    removed: tuple[int, ...] = ()
    """Former members. Their requests for votes are ignored."""
    version: int = 0
    cluster: bytes = b""
    """The random id of the cluster; empty if it was founded without one."""
    contacts: dict[int, Contact] = field(default_factory=dict, hash=False)
    """The addresses of nodes by index, for every node whose address is in the log."""

    def __post_init__(self) -> None:
        if len(self.cluster) not in (0, CLUSTER_ID_SIZE):
            raise ClusterError(f"a cluster id has {CLUSTER_ID_SIZE} bytes")
        for name in ("voters", "outgoing", "learners", "removed"):
            nodes = getattr(self, name)
            if list(nodes) != sorted(set(nodes)):
                raise ClusterError(
                    f"two {name} have the same index, or they are unordered: {nodes}"
                )
            if not all(0 <= node <= NODE_MAX for node in nodes):
                raise ClusterError(f"a node's index is a number from 0 to {NODE_MAX}: {nodes}")
        if len(self.voters) > VOTERS_MAX:
            raise ClusterError(f"a cluster has {VOTERS_MAX} voters at most: {self.voters}")
        if self.version and not self.voters:
            raise ClusterError("a cluster has one voter at least")
        if set(self.nodes) & set(self.removed) or set(self.deciding) & set(self.learners):
            raise ClusterError(f"a node is in two lists of a configuration: {self}")

    @classmethod
    def founding(cls, nodes: Iterable[int]) -> Configuration:
        """The founding configuration of a cluster. Raises ClusterError."""
        voters = tuple(sorted(nodes))
        if len(voters) not in CLUSTER_SIZES:
            sizes = ", ".join(map(str, CLUSTER_SIZES))
            raise ClusterError(f"a cluster has {sizes} nodes, not {len(voters)}")
        return cls(voters)

    # ------------------------------------------------------------------ nodes

    @property
    def deciding(self) -> tuple[int, ...]:
        """All nodes that vote: the voters before and after a change in progress."""
        return tuple(sorted({*self.voters, *self.outgoing}))

    @property
    def nodes(self) -> tuple[int, ...]:
        """All nodes that get the log."""
        return tuple(sorted({*self.voters, *self.outgoing, *self.learners}))

    def others(self, node: int) -> tuple[int, ...]:
        """All nodes that get the log, without this one."""
        return tuple(other for other in self.nodes if other != node)

    # ------------------------------------------------------------------ majorities

    def reached(self, values: Mapping[int, int]) -> int | None:
        """The greatest value that a majority has reached; during a change, a majority of each side.

        `values` = the values of some nodes. None if they are too few.
        """
        sides = [side for side in (self.voters, self.outgoing) if side]
        lows = []
        for side in sides:
            ordered = sorted((values[node] for node in side if node in values), reverse=True)
            majority = len(side) // 2 + 1
            if len(ordered) < majority:
                return None
            lows.append(ordered[majority - 1])
        return min(lows, default=None)

    def agree(self, nodes: Collection[int]) -> bool:
        """Whether these nodes are a majority; during a change, of each side."""
        return self.reached(dict.fromkeys(nodes, 0)) is not None

    # ------------------------------------------------------------------ changes

    @property
    def changing(self) -> bool:
        """Whether a change is in progress, so that the previous voters are needed too."""
        return bool(self.outgoing)

    def with_voters(self, voters: Iterable[int]) -> Configuration:
        """The first step of a change of voters: majorities of both sides are needed."""
        mine = tuple(sorted(voters))
        learners = tuple(node for node in self.learners if node not in mine)
        return replace(
            self,
            voters=mine,
            outgoing=self.voters,
            learners=learners,
            removed=tuple(node for node in self.removed if node not in mine),
            version=self.version + 1,
        )

    def settled(self) -> Configuration:
        """The second step: the previous voters that are no voters now are removed."""
        gone = {*self.outgoing} - {*self.voters}
        removed = tuple(sorted({*self.removed, *gone}))
        return replace(self, outgoing=(), removed=removed, version=self.version + 1)

    def with_learners(self, learners: Iterable[int]) -> Configuration:
        """A change of learners: one step, since they do not vote."""
        mine = tuple(sorted(learners))
        gone = {*self.removed, *self.learners} - {*mine}
        return replace(self, learners=mine, removed=tuple(sorted(gone)), version=self.version + 1)

    def with_contacts(self, contacts: Mapping[int, Contact], cluster: bytes) -> Configuration:
        """A change of contacts, or the first cluster id: one step, as the voters stay the same."""
        return replace(self, contacts=dict(contacts), cluster=cluster, version=self.version + 1)

    # ------------------------------------------------------------------ bytes

    def encode(self) -> bytes:
        """The payload of an EPOCH_BEGIN: a msgpack map; nothing for version 0."""
        return bytes(msgpack.packb(asdict(self))) if self.version else b""

    @classmethod
    def decode(cls, payload: Block) -> Configuration | None:
        """The configuration in an EPOCH_BEGIN; None for version 0. Raises ClusterError."""
        if not len(payload):
            return None
        try:
            fields: dict[str, Any] = msgpack.unpackb(payload, use_list=False, strict_map_key=False)
            return cls(**fields)
        except (ValueError, TypeError) as error:
            raise ClusterError(f"a configuration cannot be decoded: {error!r}") from error
