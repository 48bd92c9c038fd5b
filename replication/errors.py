"""The errors of replication: one base, few subclasses, facts as attributes.

Each docstring says what the caller can do now.
"""

from __future__ import annotations


class ReplicationError(Exception):
    """Base of all errors of replication."""


class ClusterError(ReplicationError):
    """The cluster's configuration cannot work. Nothing was started; change it."""


class ChangeRefusedError(ReplicationError):
    """This change of members is impossible, or not possible now. Nothing was changed."""


class PeerError(ReplicationError):
    """A peer sent what no correct peer sends. It was not used; close the connection."""


class WireError(PeerError):
    """Bytes are not a message, or an incomplete or too large one. Close the connection."""


class MetaDamagedError(ReplicationError):
    """The promises of this node cannot be read. It must not vote: it may rejoin as a learner."""

    def __init__(self, path: str, detail: str) -> None:
        self.path = path
        super().__init__(f"{path} is damaged: {detail}")


class TermFileDamagedError(ReplicationError):
    """The file with this node's vote cannot be read. Remove the file and start again.

    At worst an election is repeated: epochs decide which node may lead.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} is damaged: remove it and start again (epochs keep the promises)")


class LostCommitError(ReplicationError):
    """The leader lacks frames that were committed. Nothing was cut; take no further part."""

    def __init__(self, *, position: int, committed: int, epoch: int) -> None:
        self.position = position
        self.committed = committed
        self.epoch = epoch
        super().__init__(
            f"log from {position} to {committed} was committed, and the leader of epoch {epoch:#x} "
            "does not have it: messages that were acknowledged are missing in the cluster. This "
            "node keeps them and takes no further part. If the cluster is right (its other nodes "
            "were restored or recovered), move this data folder away and start the node with an "
            "empty one; if not, stop the other nodes and recover from this one"
        )


class DivergedError(ReplicationError):
    """Logs differ where they must be equal. The node must stop before it answers any peer."""

    def __init__(self, what: str, *, position: int, epoch: int) -> None:
        self.position = position
        self.epoch = epoch
        super().__init__(f"{what} at {position}, epoch {epoch:#x}")
