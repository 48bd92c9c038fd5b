"""Authenticated connections between the nodes of a cluster, over TCP or TLS.

Imports: replication (messages), storage (feature levels), `broker.host` (addresses, look-ups
of names, `accepting`, `tls`).
Begin with `seams` (what a node gives and gets), then `transport`, `connection`, `handshake`.
"""

from delaylog.broker.cluster.peers.counts import PeerCounts, PeerTraffic, Refused
from delaylog.broker.cluster.peers.handshake import Levels
from delaylog.broker.cluster.peers.limits import PeerLimits
from delaylog.broker.cluster.peers.seams import PeerConfig, PeerHost, Transport
from delaylog.broker.cluster.peers.tls import PeerTls
from delaylog.broker.cluster.peers.transport import PeerTransport

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
    "Transport",
]
