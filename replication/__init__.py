"""Replication of the physical log: pure state machines without sockets, clock or asyncio.

Imports: storage. Only `raftos_oracle` uses an event loop and a network.
Begin with `node` (one node of a cluster), then `campaign`, `leader` and `follower`; `wire` has the
bytes.
"""

from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import EpochTick
from delaylog.replication.errors import (
    ClusterError,
    DivergedError,
    MetaDamagedError,
    PeerError,
    ReplicationError,
    WireError,
)
from delaylog.replication.leader import Acks
from delaylog.replication.messages import Role
from delaylog.replication.meta import Meta, MetaFile, load_meta
from delaylog.replication.node import ReplicationNode
from delaylog.replication.oracle import LeaderOracle, LogState
from delaylog.replication.replica import MetaStore, Now, ReplicaLog, TickStore, Timing
from delaylog.replication.wire import Decoder, encode

__all__ = [
    "Acks",
    "ClusterError",
    "Configuration",
    "Decoder",
    "DivergedError",
    "EpochTick",
    "LeaderOracle",
    "LogState",
    "Meta",
    "MetaDamagedError",
    "MetaFile",
    "MetaStore",
    "Now",
    "PeerError",
    "ReplicaLog",
    "ReplicationError",
    "ReplicationNode",
    "Role",
    "TickStore",
    "Timing",
    "WireError",
    "encode",
    "load_meta",
]
