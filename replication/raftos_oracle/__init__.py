"""Elections by raftos: a LeaderOracle over UDP, with heartbeats that carry the tick.

The only part of replication with an event loop and a network. It subclasses raftos' election,
heartbeats and cipher; raftos' replicated log is never written. Importing the package imports
raftos, and raises RaftosMissingError without it, so only clusters import it. Begin with `oracle`.
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
from delaylog.replication.raftos_oracle.settings import ElectionTiming, LogState, OracleSettings

__all__ = [
    "Address",
    "ElectionTiming",
    "LogState",
    "OracleSettings",
    "RaftosOracle",
    "Refusal",
]
