"""Who belongs to a cluster, and how many of them decide.

A configuration is part of the log: every EPOCH_BEGIN frame carries the one of its epoch, so it is
committed, cut and copied like anything else. It changes as in joint consensus (Ongaro, Ousterhout,
"In Search of an Understandable Consensus Algorithm", section 6): the epoch of a change needs
majorities of the voters before and after it, and the epoch behind that one only of those after.

Version 0 is what the nodes were founded with. It stands in no frame but in each node's meta file.
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
"""Of a cluster that is founded: an even number costs a node more and survives no more failures."""
VOTERS_MAX: Final = 7
CLUSTER_ID_SIZE: Final = 16

Contact: TypeAlias = dict[str, str]
"""How a node is reached, in words of the host: replication only keeps it."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The nodes of a cluster by their indexes, each list in ascending order."""

    voters: tuple[int, ...]
    """The voting members; one of them leads. Empty while this node knows of no cluster."""
    outgoing: tuple[int, ...] = ()
    """The voters before, while a change is under way: they decide as well."""
    learners: tuple[int, ...] = ()
    """They get the log and decide nothing."""
    removed: tuple[int, ...] = ()
    """Former members. Their requests for votes are ignored."""
    version: int = 0
    cluster: bytes = b""
    """The random id of the cluster; empty if it was founded without one."""
    contacts: dict[int, Contact] = field(default_factory=dict, hash=False)
    """How nodes are reached, by index, for every node that the log has an address of."""

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
        """The first one of a cluster. Raises ClusterError."""
        voters = tuple(sorted(nodes))
        if len(voters) not in CLUSTER_SIZES:
            sizes = ", ".join(map(str, CLUSTER_SIZES))
            raise ClusterError(f"a cluster has {sizes} nodes, not {len(voters)}")
        return cls(voters)

    # ------------------------------------------------------------------ who

    @property
    def deciding(self) -> tuple[int, ...]:
        """Voters before and after the change under way."""
        return tuple(sorted({*self.voters, *self.outgoing}))

    @property
    def nodes(self) -> tuple[int, ...]:
        """All who get the log."""
        return tuple(sorted({*self.voters, *self.outgoing, *self.learners}))

    def others(self, node: int) -> tuple[int, ...]:
        """All but one who get the log."""
        return tuple(other for other in self.nodes if other != node)

    # ------------------------------------------------------------------ how many

    def reached(self, values: Mapping[int, int]) -> int | None:
        """The greatest value that a majority, or that of each side, has reached.

        `values` holds those of some nodes; None if they are too few.
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
        """Whether these are a majority, or one of each side."""
        return self.reached(dict.fromkeys(nodes, 0)) is not None

    # ------------------------------------------------------------------ changes

    @property
    def changing(self) -> bool:
        """Whether the voters of before still decide too."""
        return bool(self.outgoing)

    def with_voters(self, voters: Iterable[int]) -> Configuration:
        """The first step to other voters: those of both sides decide."""
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
        """The second step: who is no voter any more is removed."""
        gone = {*self.outgoing} - {*self.voters}
        removed = tuple(sorted({*self.removed, *gone}))
        return replace(self, outgoing=(), removed=removed, version=self.version + 1)

    def with_learners(self, learners: Iterable[int]) -> Configuration:
        """Other learners: one step, since they decide nothing."""
        mine = tuple(sorted(learners))
        gone = {*self.removed, *self.learners} - {*mine}
        return replace(self, learners=mine, removed=tuple(sorted(gone)), version=self.version + 1)

    def with_contacts(self, contacts: Mapping[int, Contact], cluster: bytes) -> Configuration:
        """Other contacts, or a cluster id for the first time: one step, as the voters stay."""
        return replace(self, contacts=dict(contacts), cluster=cluster, version=self.version + 1)

    # ------------------------------------------------------------------ bytes

    def encode(self) -> bytes:
        """The payload of an EPOCH_BEGIN: a msgpack map; nothing for version 0."""
        return bytes(msgpack.packb(asdict(self))) if self.version else b""

    @classmethod
    def decode(cls, payload: Block) -> Configuration | None:
        """What an EPOCH_BEGIN says; None for version 0. Raises ClusterError."""
        if not len(payload):
            return None
        try:
            fields: dict[str, Any] = msgpack.unpackb(payload, use_list=False, strict_map_key=False)
            return cls(**fields)
        except (ValueError, TypeError) as error:
            raise ClusterError(f"a configuration cannot be decoded: {error!r}") from error
