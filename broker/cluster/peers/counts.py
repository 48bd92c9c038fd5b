"""Counters of the connections between nodes: traffic, and refusals by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


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
