"""Elections by raftos: a LeaderOracle over UDP, with heartbeats that carry the tick.

The only part of replication with an event loop and a network. It subclasses raftos' election,
heartbeats and cipher; raftos' replicated log is never written. Importing the package imports
raftos, which is optional, so only `broker/cluster/elections.py` imports it. Begin with `oracle`.
"""

# The cipher first: without it raftos would only warn and send in clear text.
import cryptography
import msgpack
import raftos

from delaylog.replication.raftos_oracle.datagrams import Refusal
from delaylog.replication.raftos_oracle.oracle import RaftosOracle
from delaylog.replication.raftos_oracle.settings import Address, ElectionTiming, OracleSettings

del cryptography, msgpack, raftos

__all__ = [
    "Address",
    "ElectionTiming",
    "OracleSettings",
    "RaftosOracle",
    "Refusal",
]
