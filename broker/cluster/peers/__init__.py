"""Authenticated connections between the nodes of a cluster, over TCP or TLS.

Imports: replication (messages), storage (feature levels), `broker.host` (addresses, look-ups
of names, `accepting`, `tls`).
Begin with `transport` (also what a node gives and gets), then `connection`, `handshake`.
"""

from delaylog.broker.cluster.peers.handshake import Levels, PeerCounts, PeerTraffic, Refused
from delaylog.broker.cluster.peers.records import PeerLimits
from delaylog.broker.cluster.peers.tls import PeerTls
from delaylog.broker.cluster.peers.transport import PeerConfig, PeerHost, PeerTransport

__all__ = [
    "Levels",
    "PeerConfig",
    "PeerCounts",
    "PeerHost",
    "PeerLimits",
    "PeerTls",
    "PeerTraffic",
    "PeerTransport",
    "Refused",
]
