"""The interface between a node and its connections."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from delaylog.broker.cluster.peers.counts import PeerCounts
from delaylog.broker.cluster.peers.handshake import Keys, Levels
from delaylog.broker.cluster.peers.tls import PeerTls
from delaylog.replication.messages import FolderIdentity, Hello, Message
from delaylog.storage.log.levels import KNOWN_LEVEL


class PeerFolders(Protocol):
    """The identities of data folders; see members/folders.py."""

    def identity(self, peer: int) -> FolderIdentity:
        """The identity of this node's folder to send to a peer."""

    def judge(
        self, peer: int, hello: Hello, theirs: FolderIdentity, connected: FolderIdentity | None
    ) -> None:
        """Accept the peer's folder, or raise HandshakeError."""


class Transport(Protocol):
    """The connections of a node, as a member uses them."""

    counts: PeerCounts
    """Counters since the start."""

    async def start(self) -> int:
        """Listen and connect; returns the port. Raises OSError if it cannot listen."""

    async def stop(self) -> None:
        """End all connections."""

    def connected(self) -> frozenset[int]:
        """Peers with an open connection."""

    def hello_of(self, peer: int) -> Hello | None:
        """The HELLO of a connected peer; None if it is away."""

    def known_level(self, peer: int) -> int | None:
        """The feature level that a connected peer knows; None if it is away."""

    def folder_of(self, peer: int) -> FolderIdentity | None:
        """The folder identity of a connected peer; None if it is away."""

    def set_addresses(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """Connect to these nodes only, from now on; this node is included."""

    def set_removed(self, removed: Collection[int], farewell: Message) -> None:
        """When one of these nodes connects, send it the farewell and close the connection."""

    def dial_all(self, *, wanted: bool) -> None:
        """Set whether to dial nodes with smaller indexes too: they do not dial a removed node."""

    def send(self, peer: int, message: Message) -> None:
        """Send a message in this turn of the loop; drop it if the peer is away."""

    def flush(self) -> None:
        """Send now what would be sent at the end of the turn."""

    def drop(self, peer: int, reason: str) -> None:
        """Close the connection to a peer; it is opened again."""


@dataclass(frozen=True, slots=True)
class PeerConfig:
    """The configuration of a node's connections."""

    node: int
    cluster_id: bytes
    keys: Keys
    """Keys of 32 bytes or more, used for nothing else."""
    addresses: Mapping[int, tuple[str, int]]
    """Addresses of all nodes; see `set_addresses`."""
    listen: tuple[str, int]
    tls: PeerTls | None = None


@dataclass(frozen=True, slots=True)
class PeerHost:
    """The owner of a node's connections: what it sends to peers, and its callbacks."""

    hello: Callable[[], Hello]
    folders: PeerFolders
    on_message: Callable[[int, Message], None]
    """May raise PeerError, which closes the connection."""
    on_connect: Callable[[int], None]
    on_disconnect: Callable[[int, bool], None]
    """Called once after each `on_connect`, never from inside `send`, `flush` or `drop`. True = the
    other side closed the connection, as the kernel does when a process ends."""
    levels: Callable[[], Levels] = lambda: Levels(KNOWN_LEVEL)
    describe: Callable[[int], str] = "node {}".format
    """A node for messages, such as `node 2 (beta)`."""
    stretch: Callable[[], float] = lambda: 1.0
    """By how much the machine is busy: a peer may be silent that much longer."""
