"""What a node gives to its connections, and what it needs of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from delaylog.broker.cluster.peers.counts import PeerCounts
from delaylog.broker.cluster.peers.handshake import Levels
from delaylog.broker.cluster.peers.tls import PeerTls
from delaylog.replication.messages import FolderIdentity, Hello, Message
from delaylog.storage.log.levels import KNOWN_LEVEL


class PeerFolders(Protocol):
    """What a member knows of data folders; see folders.py."""

    def identity(self, peer: int) -> FolderIdentity:
        """What to tell a peer of the own folder."""

    def judge(
        self, peer: int, hello: Hello, theirs: FolderIdentity, connected: FolderIdentity | None
    ) -> None:
        """See whether the connection may be used. Raises HandshakeError."""


class Transport(Protocol):
    """What a member needs of its connections."""

    counts: PeerCounts
    """Since the start."""

    async def start(self) -> int:
        """Connect; returns the port that is listened on. Raises OSError if there is none."""

    async def stop(self) -> None:
        """End all connections."""

    def connected(self) -> frozenset[int]:
        """Peers that messages reach now."""

    def hello_of(self, peer: int) -> Hello | None:
        """What a connected peer said first."""

    def known_level(self, peer: int) -> int | None:
        """The feature level that a connected peer knows; None while it is away."""

    def folder_of(self, peer: int) -> FolderIdentity | None:
        """What a connected peer says of its folder; None if it is away or says nothing."""

    def set_addresses(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """Know these nodes from now on, this one included, and no others."""

    def set_removed(self, removed: Collection[int], farewell: Message) -> None:
        """Tell these nodes that they were removed when they connect, and close the connection."""

    def dial_all(self, *, wanted: bool) -> None:
        """Whether to dial nodes with smaller indexes too: they do not dial a removed node."""

    def send(self, peer: int, message: Message) -> None:
        """Send it in this turn of the loop, or drop it if the peer is away."""

    def flush(self) -> None:
        """Send now what was to be sent at the end of the turn."""

    def drop(self, peer: int, reason: str) -> None:
        """Close the connection of a peer; there will be another."""


@dataclass(frozen=True, slots=True)
class PeerConfig:
    """A node's place among its peers."""

    node: int
    cluster_id: bytes
    key: bytes
    """32 bytes or more, of this use only."""
    addresses: Mapping[int, tuple[str, int]]
    """Of all nodes; see `set_addresses`."""
    listen: tuple[str, int]
    tls: PeerTls | None = None


@dataclass(frozen=True, slots=True)
class PeerHost:
    """Who stands behind the connections of a node: what it says of itself, and what it is told."""

    hello: Callable[[], Hello]
    folders: PeerFolders
    on_message: Callable[[int, Message], None]
    """May raise PeerError, which closes that connection."""
    on_connect: Callable[[int], None]
    on_disconnect: Callable[[int], None]
    """Called once after each `on_connect`, never from inside `send`, `flush` or `drop`."""
    levels: Callable[[], Levels] = lambda: Levels(KNOWN_LEVEL)
