"""The errors of replication: one base, few subclasses, facts as attributes.

Each docstring says what the caller can do now.
"""

from __future__ import annotations


class ReplicationError(Exception):
    """Base of everything replication raises on purpose."""


class ClusterError(ReplicationError):
    """The cluster's configuration cannot work. Nothing was started; change it."""


class PeerError(ReplicationError):
    """A peer sent what no sound peer sends. Nothing of it was taken; close the connection."""


class WireError(PeerError):
    """Bytes are no message, are cut short or are larger than any. Close the connection."""


class MetaDamagedError(ReplicationError):
    """What this node has promised cannot be read. It must not vote: it may rejoin as a learner."""

    def __init__(self, path: str, detail: str) -> None:
        self.path = path
        super().__init__(f"{path} is damaged: {detail}")


class DivergedError(ReplicationError):
    """Logs differ where they never may. The node must stop before it answers anybody again."""

    def __init__(self, what: str, *, position: int, epoch: int) -> None:
        self.position = position
        self.epoch = epoch
        super().__init__(f"{what} at {position}, epoch {epoch:#x}")
