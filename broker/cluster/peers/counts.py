"""What the connections between nodes have carried and refused, for metrics and for people."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class Refused(StrEnum):
    """Why a connection was closed by this node, or counted as bad."""

    GARBAGE = "garbage"
    """It does not begin like a node of any cluster."""
    VERSION = "version"
    """It speaks another version."""
    CLUSTER = "other_cluster"
    FOLDER = "stale_folder"
    """Its data folder, or this node's, is not the newest that the node has served with."""
    NODE = "wrong_node"
    """Not the node that is expected at that end, or meant for another one."""
    KEY = "wrong_key"
    """It does not know the secret."""
    TLS = "tls"
    LATE = "late"
    """It did not prove itself in time."""
    CROWD = "crowd"
    """Too many that have not proven themselves; it was the oldest."""
    RECORD = "record"
    """A record was altered, repeated, out of order or injected, or is longer than any."""
    WIRE = "wire"
    """The bytes of a proven peer are no messages."""
    HELLO = "hello"
    """HELLO is missing, comes twice or names somebody else."""
    MESSAGE = "message"
    """A message that no sound peer sends."""
    CUT = "cut"
    """The connection ended inside a record or before the peer had proven itself."""
    SILENT = "silent"
    """No byte came for too long."""
    SLOW = "slow"
    """It reads so slowly that too much waits for it."""
    REPLACED = "replaced"
    """The same peer has come again on a newer connection."""
    HOST = "host"
    """The broker asked for it."""
    FAILED = "failed"
    """This node failed on a message; that is an error of its own."""


@dataclass(slots=True)
class PeerTraffic:
    """One peer, since the start. Bytes are those of records, as they stand in the TCP stream."""

    connects: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    messages_in: int = 0
    messages_out: int = 0
    messages_dropped: int = 0
    """Sent while the peer was not connected."""
    dials_failed: int = 0
    """Nobody listened, or not in time."""


@dataclass(slots=True)
class PeerCounts:
    """All of a transport."""

    refused: Counter[Refused] = field(default_factory=Counter)
    peers: dict[int, PeerTraffic] = field(default_factory=dict)
    strangers: int = 0
    """Connections now that have not proven themselves."""
    strangers_most: int = 0
    """The most of them at any time."""
