"""Elects by raftos: a LeaderOracle over UDP, and heartbeats that carry the tick.

The one part of replication that knows an event loop and a network. raftos' election, heartbeats
and cipher are used by subclassing; its replicated log is never written. Importing this package
imports raftos, so only who runs a cluster does; raises RaftosMissingError if it is not installed.
"""

from delaylog.replication.errors import RaftosMissingError

try:
    # The cipher first: without it raftos would only warn and send in clear text.
    import cryptography
    import msgpack
    import raftos
except ImportError as error:
    raise RaftosMissingError(error.name or "raftos") from error
else:
    del cryptography, msgpack, raftos

from delaylog.replication.raftos_oracle.oracle import RaftosOracle
from delaylog.replication.raftos_oracle.refusals import Refusal
from delaylog.replication.raftos_oracle.roster import Address
from delaylog.replication.raftos_oracle.settings import ElectionTiming, OracleSettings, Standing

__all__ = [
    "Address",
    "ElectionTiming",
    "OracleSettings",
    "RaftosOracle",
    "Refusal",
    "Standing",
]
