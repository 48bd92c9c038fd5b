"""The handshake: two nodes prove to each other that they know the cluster's secret.

    challenge, 64 bytes, both ways
     0 magic 4s "DLPR" | 4 version u8 | 5 side u8: 1 dials, 2 listens | 6 sender u16 | 8 target u16
    10 zero u16 | 12 zero u32 | 16 cluster_id 16s | 32 nonce 32s

    dialler                                        listener
    challenge 1                          ->
                                         <-        challenge 2, proof 2
    proof 1                              ->
    records                              <->       records

    both  = challenge 1 + challenge 2
    proof = HMAC-SHA256(key, label + both), 32 bytes; the labels of the two sides differ
    key of a direction = HMAC-SHA256(key, label + both), again with a label for each

    announcement, the last 8 bytes of a nonce
     0 magic 6s "DLlevl" | 6 known u8 | 7 reached u8

A nonce ends in an announcement: the highest feature level that the node knows, and the level that
its log has reached (storage/log/frames.py). Each side refuses the other, before any frame is sent,
if the log of one has reached a level that the other does not know, or if it announces nothing.

A listener with several keys uses its first one. A dialler with several keys finds the one that the
listener's proof was made with, and uses it too.

All numbers are little-endian. The dialler has the smaller index; a node without a majority dials
all, since it may have been removed, which any member tells it. A proof covers both nonces, both
indexes, both sides, the cluster and the version, and its label names the side that gives it: sent
back to its sender, or on another connection, it proves nothing. The first record of each side
carries only its HELLO; nothing else is accepted before it.

Pure: bytes in, bytes out; the nonce is an argument. Raises HandshakeError.

Counters of the connections are here too: traffic, and refusals by reason.
"""

from __future__ import annotations

import hmac
import struct
from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final, TypeAlias

from delaylog.replication.errors import PeerError
from delaylog.storage.log.frames import FIRST_LEVEL, KNOWN_LEVEL

# ------------------------------------------------------------------------------------- counters


class Refused(StrEnum):
    """Why a connection was closed by this node, or counted as bad."""

    GARBAGE = "garbage"
    """The first bytes are not those of a node of any cluster."""
    VERSION = "version"
    """The peer uses another version of the protocol."""
    CLUSTER = "other_cluster"
    FOLDER = "stale_folder"
    """The peer's data folder, or this node's, is stale."""
    NODE = "wrong_node"
    """Not the expected node, or a connection for another node."""
    WAY = "wrong_way"
    """A member that this node dials has dialled it: without a majority a node dials everybody, to
    learn whether it was removed."""
    KEY = "wrong_key"
    """The peer does not know the secret."""
    TLS = "tls"
    LATE = "late"
    """The peer did not authenticate itself in time."""
    CROWD = "crowd"
    """Too many connections are not authenticated yet; this was the oldest of them."""
    RECORD = "record"
    """A record was altered, repeated, reordered or injected, or is too long."""
    WIRE = "wire"
    """An authenticated peer sent bytes that are no messages."""
    HELLO = "hello"
    """HELLO is missing, comes twice or names another node."""
    MESSAGE = "message"
    """A message that no correct peer sends."""
    CUT = "cut"
    """The connection ended inside a record or before the peer was authenticated."""
    SILENT = "silent"
    """No byte came for `silent_ms`."""
    SLOW = "slow"
    """The peer reads so slowly that too many bytes wait for it."""
    REPLACED = "replaced"
    """The same peer has opened a newer connection."""
    HOST = "host"
    """The member closed it."""
    FAILED = "failed"
    """This node failed while it processed a message; it logs its own error."""


NOT_LASTING: Final = frozenset(
    {
        Refused.LATE,
        Refused.CROWD,
        Refused.SILENT,
        Refused.SLOW,
        Refused.REPLACED,
        Refused.HOST,
        Refused.FAILED,
    }
)
"""Reasons that concern one connection: the next one may be as good as any."""


@dataclass(slots=True)
class PeerTraffic:
    """Counters of one peer since the start. Bytes are those of records in the TCP stream."""

    connects: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    messages_in: int = 0
    messages_out: int = 0
    messages_dropped: int = 0
    """Sent while the peer was not connected."""
    dials_failed: int = 0
    """Attempts to connect that failed or were too late."""


@dataclass(slots=True)
class PeerCounts:
    """Counters of a transport."""

    refused: Counter[Refused] = field(default_factory=Counter)
    peers: dict[int, PeerTraffic] = field(default_factory=dict)
    strangers: int = 0
    """Connections that are not authenticated at the moment."""
    strangers_most: int = 0
    """The highest value of `strangers` so far."""

    def include(self, peers: Iterable[int]) -> None:
        """Have counters of these peers, which keep their values."""
        for peer in peers:
            self.peers.setdefault(peer, PeerTraffic())


# -------------------------------------------------------------------------------- the handshake

MAGIC: Final = b"DLPR"
VERSION: Final = 1
CHALLENGE: Final = struct.Struct("<4sBBHHHI16s32s")
CHALLENGE_SIZE: Final = 64
assert CHALLENGE.size == CHALLENGE_SIZE
NONCE_SIZE: Final = 32
PROOF_SIZE: Final = 32
NO_PROOF: Final = bytes(PROOF_SIZE)
"""What a dialler sends in place of a proof to a listener that has another secret."""
KEY_SIZE_MIN: Final = 32
ANNOUNCEMENT: Final = struct.Struct("<6sBB")
ANNOUNCEMENT_MAGIC: Final = b"DLlevl"
assert ANNOUNCEMENT.size == 8


Keys: TypeAlias = Callable[[], tuple[bytes, ...]]
"""The keys of a node at present. A listener proves itself by the first one, and the dialler accepts
each of its own: so nodes can exchange a key one after the other."""


class Side(IntEnum):
    """Which end of a connection."""

    DIALS = 1
    LISTENS = 2

    @property
    def other(self) -> Side:
        return Side.LISTENS if self is Side.DIALS else Side.DIALS


class HandshakeError(PeerError):
    """The peer failed the handshake. Close the connection."""

    def __init__(self, reason: Refused, text: str) -> None:
        self.reason = reason
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Levels:
    """Feature levels of a node: the highest that it knows, and that of its log."""

    known: int = FIRST_LEVEL
    reached: int = FIRST_LEVEL


def announce(nonce: bytes, levels: Levels) -> bytes:
    """The nonce with an announcement at its end."""
    tail = ANNOUNCEMENT.pack(ANNOUNCEMENT_MAGIC, levels.known, levels.reached)
    return nonce[: -ANNOUNCEMENT.size] + tail


def announced(nonce: bytes) -> Levels:
    """The levels that a peer's nonce announces."""
    magic, known, reached = ANNOUNCEMENT.unpack(nonce[-ANNOUNCEMENT.size :])
    return Levels(known, reached) if magic == ANNOUNCEMENT_MAGIC else Levels(0, 0)


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of this node, and the key that proves it."""

    node: int
    cluster_id: bytes
    keys: Keys
    members: Container[int]
    """All nodes of the cluster; read in each handshake, since members change."""
    levels: Callable[[], Levels] = lambda: Levels(KNOWN_LEVEL)
    """Read in each handshake, since the level of a log rises."""
    removed: Container[int] = frozenset()
    """Nodes that were removed from the cluster; they are told so when they connect."""

    def __post_init__(self) -> None:
        assert len(self.cluster_id) == 16
        assert all(len(key) >= KEY_SIZE_MIN for key in self.keys()), "a short key could be guessed"

    def __repr__(self) -> str:
        return f"Identity(node={self.node})"


@dataclass(frozen=True, slots=True)
class Session:
    """The result of a handshake: the peer, and the keys of the two directions."""

    peer: int
    send_key: bytes
    receive_key: bytes

    def __repr__(self) -> str:
        return f"Session(peer={self.peer})"


class Handshake:
    """One side of one connection.

    The dialler calls `challenge`, `answer` (and sends the result), `session`; the listener calls
    `meet` (and sends the result), `check`, `session`.
    """

    def __init__(self, identity: Identity, side: Side, nonce: bytes) -> None:
        assert len(nonce) == NONCE_SIZE
        self._identity = identity
        self._side = side
        self._nonce = announce(nonce, identity.levels())
        self._keys = identity.keys()
        self._key = self._keys[0]
        """The key of this connection: the listener's first."""
        self._mine = b""
        self._both = b""
        self.peer: int | None = None
        """The peer; None until it is known."""
        self.peer_levels = Levels()
        """The levels that the peer has announced."""

    def challenge(self, peer: int) -> bytes:
        """The challenge that opens a connection to this peer."""
        self.peer = peer
        own = self._identity
        self._mine = CHALLENGE.pack(
            MAGIC, VERSION, self._side, own.node, peer, 0, 0, own.cluster_id, self._nonce
        )
        return self._mine

    def answer(self, data: bytes) -> bytes:
        """The proof that answers the listener's challenge and proof."""
        assert self._side is Side.DIALS
        theirs = data[:CHALLENGE_SIZE]
        self._read(theirs)
        self._both = self._mine + theirs
        proof = data[CHALLENGE_SIZE:]
        for key in self._keys:
            self._key = key
            if hmac.compare_digest(proof, self._proof(self._side.other)):
                break
        self.check(proof)
        return self._proof(self._side)

    def meet(self, data: bytes) -> bytes:
        """The challenge and proof that answer the dialler's challenge."""
        assert self._side is Side.LISTENS
        sender = self._read(data)
        own = self._identity
        if sender not in own.removed:
            if sender not in own.members:
                raise HandshakeError(Refused.NODE, f"there is no node {sender}")
            if sender == own.node:
                raise HandshakeError(Refused.NODE, f"another process runs as node {sender}")
            if sender > own.node:
                text = f"node {sender} dials because it has no majority, but has to be dialled"
                raise HandshakeError(Refused.WAY, text)
        mine = self.challenge(sender)
        self._both = data + mine
        return mine + self._proof(self._side)

    def check(self, proof: bytes) -> None:
        """Check the other side's proof."""
        if not hmac.compare_digest(proof, self._proof(self._side.other)):
            text = f"node {self.peer} does not know the secret: the two nodes have different ones"
            raise HandshakeError(Refused.KEY, text)

    def session(self) -> Session:
        """The session, once both proofs are checked."""
        assert self.peer is not None
        mine = self._mac(b"delaylog records from %d" % self._side)
        theirs = self._mac(b"delaylog records from %d" % self._side.other)
        return Session(self.peer, mine, theirs)

    def _read(self, data: bytes) -> int:
        """Check a challenge; returns its sender."""
        magic, version, side, sender, target, zero, zeros, cluster_id, nonce = CHALLENGE.unpack(
            data
        )
        own = self._identity
        if magic != MAGIC or zero or zeros:
            raise HandshakeError(Refused.GARBAGE, "the peer is not a node of a cluster")
        if version != VERSION:
            raise HandshakeError(
                Refused.VERSION, f"connections of version {version}; this node speaks {VERSION}"
            )
        if cluster_id != own.cluster_id:
            raise HandshakeError(Refused.CLUSTER, "the peer is a node of another cluster")
        if side != self._side.other:
            raise HandshakeError(Refused.GARBAGE, "both ends of the connection have the same role")
        if target != own.node or (self.peer is not None and sender != self.peer):
            raise HandshakeError(
                Refused.NODE, f"node {sender} looks for node {target}; this is node {own.node}"
            )
        self.peer_levels = announced(nonce)
        self.check_levels(int(sender))
        return int(sender)

    def check_levels(self, sender: int | None = None) -> None:
        """Refuse the peer if one log has reached a level that the other node does not know."""
        sender = self.peer if sender is None else sender
        mine, theirs = self._identity.levels(), self.peer_levels
        if theirs.known < mine.reached:
            raise HandshakeError(
                Refused.VERSION,
                f"node {sender} runs an older delaylog (it knows feature level {theirs.known}, and "
                f"the cluster is at {mine.reached}): run this release, or a later one, there",
            )
        if theirs.reached > mine.known:
            raise HandshakeError(
                Refused.VERSION,
                f"node {sender} runs a newer delaylog (the cluster is at feature level "
                f"{theirs.reached}; this one knows {mine.known}): run that release here",
            )

    def _proof(self, side: Side) -> bytes:
        return self._mac(b"delaylog proof of %d" % side)

    def _mac(self, label: bytes) -> bytes:
        return hmac.digest(self._key, label + b"\0" + self._both, "sha256")
