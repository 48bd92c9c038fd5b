"""The errors of replication: one base, few subclasses, facts as attributes.

Each docstring says what the caller can do now.
"""

from __future__ import annotations


class ReplicationError(Exception):
    """Base of everything replication raises on purpose."""


class ClusterError(ReplicationError):
    """The cluster's configuration cannot work. Nothing was started; change it."""


class ChangeRefusedError(ReplicationError):
    """The members cannot be changed so, or not now. Nothing was changed; the text says why."""


class RaftosMissingError(ClusterError):
    """raftos or what it needs is not installed. Run the command, then start again."""

    COMMAND = "pip install 'cryptography>=42' && pip install --no-deps raftos==0.2.6"

    def __init__(self, module: str) -> None:
        self.module = module
        super().__init__(f"a cluster elects by raftos, but {module} is missing: {self.COMMAND}")


class PeerError(ReplicationError):
    """A peer sent what no sound peer sends. Nothing of it was taken; close the connection."""


class WireError(PeerError):
    """Bytes are no message, are cut short or are larger than any. Close the connection."""


class MetaDamagedError(ReplicationError):
    """What this node has promised cannot be read. It must not vote: it may rejoin as a learner."""

    def __init__(self, path: str, detail: str) -> None:
        self.path = path
        super().__init__(f"{path} is damaged: {detail}")


class TermFileDamagedError(ReplicationError):
    """Whom this node voted for cannot be read. Remove the file and start again.

    That may cost an election a second turn and nothing more: who may lead is decided by epochs.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} is damaged: remove it and start again (epochs keep the promises)")


class DivergedError(ReplicationError):
    """Logs differ where they never may. The node must stop before it answers anybody again."""

    def __init__(self, what: str, *, position: int, epoch: int) -> None:
        self.position = position
        self.epoch = epoch
        super().__init__(f"{what} at {position}, epoch {epoch:#x}")
