"""The cluster's configuration as one node sees it: the members, its own index, and the keys.

At first it is the checked cluster file. Once the log has a configuration, `following` replaces the
members by those of the log.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from delaylog.broker.cluster.config.member import Member, make_member
from delaylog.broker.cluster.config.secret import ClusterSecret, KeyUse, derive_key
from delaylog.broker.cluster.peers.seams import PeerConfig
from delaylog.broker.cluster.peers.tls import PeerTls
from delaylog.broker.rules.addresses import Address
from delaylog.replication.configuration import CLUSTER_ID_SIZE, Configuration
from delaylog.replication.leading.leader import Acks


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """A checked cluster file, as this node sees it."""

    name: str
    cluster_id: bytes
    node: int
    members: tuple[Member, ...]
    """By ascending index."""
    acks: Acks
    tls: PeerTls | None
    secret: ClusterSecret = field(repr=False)
    listen_at: Address | None = None
    """`listen` of the cluster file: where this node listens for others, if not at its `peer`."""

    @property
    def me(self) -> Member:
        """This node."""
        return self.member(self.node)

    @property
    def others(self) -> tuple[Member, ...]:
        """All members but this node."""
        return tuple(member for member in self.members if member.node != self.node)

    @property
    def peers(self) -> dict[int, Address]:
        """The peer address of each node, by index."""
        return {member.node: member.peer for member in self.members}

    def member(self, node: int) -> Member:
        """The member of this index."""
        return next(member for member in self.members if member.node == node)

    def name_of(self, node: int) -> str:
        """The name of a node, which need not be a member any more."""
        return next((each.name for each in self.members if each.node == node), f"node-{node}")

    def describe(self, node: int) -> str:
        """A node for log lines: its index and its name."""
        return f"node {node} ({self.name_of(node)})"

    def following(self, configuration: Configuration) -> ClusterConfig:
        """A copy with the members of a configuration in the log, and this node.

        Raises ClusterError. Version 0 names no members: those of the cluster file stay.
        """
        if not configuration.version:
            return self
        known = {each.node: each for each in self.members}
        for node, contact in configuration.contacts.items():
            made, mine = make_member(node, contact), known.get(node)
            if mine is not None:
                # The log has no priorities and zones: each node reads its own cluster file.
                made = replace(made, priority=mine.priority, zone=mine.zone)
            known[node] = made
        nodes = sorted({*configuration.nodes, self.node} & known.keys())
        return replace(self, members=tuple(known[node] for node in nodes))

    def peer_config(self) -> PeerConfig:
        """The part of this configuration that connections between nodes need."""
        return PeerConfig(
            self.node,
            self.cluster_id,
            lambda: self.keys(KeyUse.PEERS),
            self.peers,
            self.listen,
            self.tls,
        )

    @property
    def listen(self) -> Address:
        """Where this node listens for other nodes; no host = on all addresses of the machine."""
        return self.listen_at or self.me.listen

    @property
    def listen_election(self) -> Address:
        """Where this node listens for elections by UDP."""
        return self.listen[0], self.me.election[1]

    def keys(self, use: KeyUse) -> tuple[bytes, ...]:
        """The keys for one use, derived from the secrets at present: the first is used, and all are
        accepted.
        """
        return tuple(derive_key(each, self.cluster_id, use) for each in self.secret.values)


def cluster_id_of(name: str) -> bytes:
    """The 16 bytes that identify a cluster by its name."""
    return hashlib.sha256(b"delaylog cluster\0" + name.encode()).digest()[:CLUSTER_ID_SIZE]
