"""Detects stale data folders: a folder must be the one that its node last served with.

Every start on a folder draws a random incarnation. The folder stores its last 256 incarnations, and
those that other nodes remember. Nodes exchange incarnations when they connect, and remember the
newest one of each other. A folder whose list lacks the incarnation that another node remembers is
stale: it is an old copy, belongs to a second process with the same index, or was made anew. It may
lack promises and acknowledged frames, so its node takes no part until it has joined as a learner
with a new copy of the data.

A node cannot detect an old copy that was made after it last connected with the copy's node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from delaylog.broker.cluster.peers.handshake import HandshakeError, Refused
from delaylog.replication.configuration import CLUSTER_ID_SIZE
from delaylog.replication.messages import FolderIdentity, Hello
from delaylog.replication.meta import Meta, MetaFile
from delaylog.replication.node import ReplicationNode
from delaylog.storage.errors import CorruptionError, DiskFullError

UNKNOWN: Final = bytes(CLUSTER_ID_SIZE)


class StaleFolderError(CorruptionError):
    """This data folder is not the newest of its node. Stop; the next start sets its data aside."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__("a stale data folder", path=path, position=0, detail=detail)

    def __str__(self) -> str:
        return self.detail


class Folders:
    """Checks the identity of this member's folder and of its peers' folders."""

    def __init__(
        self,
        *,
        meta: Callable[[], MetaFile],
        hello: Callable[[], Hello],
        history: Callable[[], bytes],
        version: Callable[[], int],
        replication: Callable[[], ReplicationNode | None],
        on_stale: Callable[[StaleFolderError], None],
    ) -> None:
        """`history` = see `FolderIdentity`; `version` = version of the configuration in force, as
        the folders of nodes that it removes are forgotten. `on_stale` is called at most once for
        each connection.
        """
        self._meta_file = meta
        self._hello = hello
        self._history = history
        self._version = version
        self._replication = replication
        self._on_stale = on_stale
        self.unsaved = 0
        """Connections that were refused, as there was no space to remember the peer's folder."""

    @property
    def seen(self) -> dict[int, int]:
        """The newest incarnation of each other node's folder, of voters and learners."""
        return {**self._meta.met, **self._meta.learners}

    @property
    def _meta(self) -> Meta:
        return self._meta_file().meta

    def identity(self, peer: int) -> FolderIdentity:
        """The identity to send to a peer."""
        leads, acknowledged = self._acknowledged(peer)
        return (
            Visitor(self._meta)
            .identity(peer)
            ._replace(
                version=self._version(),
                history=self._history(),
                leads=leads,
                acknowledged=acknowledged,
            )
        )

    def _acknowledged(self, peer: int) -> tuple[int, int]:
        """The epoch in which this node leads, and the log that a voter has acknowledged in it;
        zero for a value that does not apply.
        """
        replication = self._replication()
        leader = None if replication is None else replication.leader
        if leader is None:
            return 0, 0
        progress = leader.progress.get(peer)
        return leader.epoch, 0 if progress is None or not progress.counts else progress.match

    def judge(
        self, peer: int, hello: Hello, theirs: FolderIdentity, connected: FolderIdentity | None
    ) -> None:
        """Refuse a stale folder, and remember an accepted one. Raises HandshakeError.

        `connected` = the identity of the peer that is connected with the same index already.
        """
        self._check_cluster(peer, theirs)
        self._check_own(peer, hello, theirs)
        self._check_peer(peer, hello, theirs, connected)
        # A learner has promised and acknowledged nothing with its folder. If its node returns with
        # its previous folder, as after a disk was not mounted, that folder is accepted.
        after = self._meta.has_met(peer, theirs.incarnation, voter=hello.voter)
        if after != self._meta and self._joined:
            try:
                self._meta_file().save(after)
            except DiskFullError as error:
                self.unsaved += 1
                why = f"the folder of node {peer} cannot be remembered: {error}"
                raise HandshakeError(Refused.FOLDER, why) from None

    @property
    def _joined(self) -> bool:
        """Whether this folder has joined; see greeting.py."""
        return self._replication() is not None

    @property
    def _only_copies(self) -> bool:
        """Whether this node is a learner: it follows the voters' leader, and may have
        been away while another node lost its disk and was readmitted.
        """
        replication = self._replication()
        return replication is not None and (
            self._meta.node_id in replication.configuration.learners
        )

    def _check_cluster(self, peer: int, theirs: FolderIdentity) -> None:
        mine = self._meta.cluster
        if mine and theirs.cluster not in (UNKNOWN, mine):
            raise HandshakeError(
                Refused.CLUSTER,
                f"the folder of node {peer} belongs to another cluster of this name (id "
                f"{theirs.cluster.hex()}; here it is {mine.hex()}): a node that is to join this "
                "cluster needs an empty data folder",
            )

    def _check_own(self, peer: int, said: Hello, theirs: FolderIdentity) -> None:
        """Refuse the peer if it knows that this folder is stale; then this node has to end."""
        hello, meta = self._hello(), self._meta
        if not hello.voter:
            return
        why = None
        if theirs.remembered and not {theirs.remembered, theirs.learner} & {*meta.incarnations}:
            if self._knows_less(peer, said, theirs):
                raise HandshakeError(
                    Refused.FOLDER,
                    f"node {peer} remembers an earlier data folder of node {hello.node} and is "
                    "behind: its folder is an old copy, or it was away while that folder was "
                    "replaced and has to catch up from another leader first; hand over to one",
                )
            why = (
                f"node {peer} has met node {hello.node} with another data folder since this one "
                "was used last"
            )
        elif theirs.leads == hello.promised and theirs.acknowledged > hello.end:
            why = (
                f"node {hello.node} has acknowledged {theirs.acknowledged} bytes of log to node "
                f"{peer}, and this folder holds {hello.end}"
            )
        if why is not None:
            error = StaleFolderError(
                self._meta_file().path,
                f"{why}: it is an old copy, or another process serves as node {hello.node}",
            )
            self._on_stale(error)
            raise HandshakeError(Refused.FOLDER, error.detail)

    def _knows_less(self, peer: int, said: Hello, theirs: FolderIdentity) -> bool:
        """Whether the peer considers this folder stale only because its own data is old.

        It remembers the folder that this node had before it lost its disk. This node was readmitted
        since then, so it has promised a later epoch. If two nodes consider each other stale and
        have promised the same epoch, neither ends. Or the peer does not know yet that this node was
        removed and added again.
        """
        mine, replication = self._hello().promised, self._replication()
        if replication is not None and theirs.version < replication.configuration.version:
            return True
        return said.promised < mine or (said.promised == mine and self._is_old(peer, said, theirs))

    def _is_old(self, peer: int, said: Hello, theirs: FolderIdentity) -> bool:
        """Whether a peer's folder lacks the incarnation that this node remembers."""
        meta = self._meta
        known = {meta.met.get(peer, 0), meta.learners.get(peer, 0)}
        return said.voter and peer in meta.met and not known & {*theirs.incarnations}

    def _check_peer(
        self, peer: int, hello: Hello, theirs: FolderIdentity, connected: FolderIdentity | None
    ) -> None:
        if connected is not None and connected.incarnation not in theirs.incarnations:
            raise HandshakeError(
                Refused.FOLDER,
                f"another process is connected as node {peer}: two processes serve as node {peer}, "
                "on different data folders; stop one of them",
            )
        if self._is_old(peer, hello, theirs) and not self._only_copies:
            raise HandshakeError(
                Refused.FOLDER,
                f"the data folder of node {peer} is not the newest that it has served with: it is "
                f"an old copy, or another process serves as node {peer}",
            )
        leads, acknowledged = self._acknowledged(peer)
        if hello.voter and leads and hello.promised == leads and hello.end < acknowledged:
            raise HandshakeError(
                Refused.FOLDER,
                f"node {peer} has acknowledged {acknowledged} bytes of log and holds {hello.end}",
            )


class Visitor:
    """The identity of a node that only connects to see which nodes are there."""

    def __init__(self, meta: Meta) -> None:
        self._meta = meta

    def identity(self, peer: int) -> FolderIdentity:
        """The identity to send to a peer."""
        meta = self._meta
        return FolderIdentity(
            cluster=meta.cluster or UNKNOWN,
            incarnation=meta.incarnations[-1] if meta.incarnations else 0,
            version=0,
            history=UNKNOWN,
            remembered=meta.met.get(peer, 0),
            learner=meta.learners.get(peer, 0),
            leads=0,
            acknowledged=0,
            incarnations=meta.incarnations,
        )

    def judge(
        self, peer: int, hello: Hello, theirs: FolderIdentity, connected: FolderIdentity | None
    ) -> None:
        """Accept every folder: a visitor exchanges no log."""


def history_of(entries: tuple[tuple[int, int], ...], end: int, members: tuple[int, ...]) -> bytes:
    """A 16-byte hash that two logs share only if they have the same frames, apart from the newest
    epoch, and their nodes have the same members.

    The newest epoch is left out because each restore of a backup begins its own, at one position.
    """
    begin = entries[-1][1] if entries else 0
    said = repr((entries[:-1], begin, end, members)).encode()
    return hashlib.sha256(said).digest()[:CLUSTER_ID_SIZE]
