"""The greetings that members exchange when they connect, by which a folder joins the cluster.

A greeting is HELLO, the feature levels and the identity of the data folder. A folder that is not
part of the cluster yet joins once the greetings of the other nodes decide what it becomes: a voter
of a new cluster, or a learner.

A node with a blank disk may have been wiped, after promises and acknowledgements that it does not
know. Only an operator knows that a cluster is new, and states it on every node (`--new-cluster`).
Even then a node becomes a voter only if all other nodes are connected and have the same data, which
is none or copies of one backup. Otherwise it joins as a learner, and a leader readmits it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from delaylog.broker.cluster.member_files import MemberFiles
from delaylog.broker.cluster.members.folders import Folders, StaleFolderError
from delaylog.broker.cluster.members.known_members import KnownMembers
from delaylog.broker.cluster.peers import Levels
from delaylog.replication.configuration import CLUSTER_ID_SIZE
from delaylog.replication.messages import FolderIdentity, Hello
from delaylog.replication.meta import MetaFile
from delaylog.storage.log.frames import FIRST_LEVEL, KNOWN_LEVEL

if TYPE_CHECKING:
    from delaylog.broker.cluster.member import ClusterMember

# -------------------------------------------------------------------------------------- joining

log = logging.getLogger("delaylog.cluster")

_FOUND = (
    "if the cluster is new, stop all its nodes, empty their data folders and start them with "
    "--new-cluster"
)


def is_new(
    mine: FolderIdentity, others: Iterable[int], heard: Mapping[int, FolderIdentity]
) -> bool | None:
    """Whether this node joins as a voter; None until all other nodes have connected."""
    for node in others:
        one = heard.get(node)
        if one is None:
            return None
        if one.history != mine.history:
            return False
    return True


class Joining:
    """How one node joins, by the greetings of the other nodes."""

    def __init__(self, node: int, others: Sequence[int], *, new_cluster: bool) -> None:
        """`new_cluster` = an operator states that the cluster is new."""
        self._node = node
        self._others = others
        self._new_cluster = new_cluster
        self._heard: dict[int, FolderIdentity] = {}

    def hear(self, peer: int, folder: FolderIdentity) -> None:
        """Another node has connected, with this folder."""
        self._heard[peer] = folder

    def waits_for(self) -> str:
        """What keeps this node from joining."""
        away = [node for node in self._others if node not in self._heard]
        if away:
            return f"this node waits for all other members before it joins; missing: {away}"
        first = min(self._others, default=self._node)
        return (
            f"this node waits for node {first} to draw the id of the new cluster: was it started "
            "with --new-cluster and an empty data folder?"
        )

    def enter_blank(self, meta: MetaFile) -> bool:
        """Join as a learner, unless the cluster is stated to be new. Returns whether it joined."""
        if self._new_cluster:
            return False
        log.warning(
            "this folder is blank, so the node joins as a learner until a leader readmits it; %s",
            _FOUND,
        )
        meta.save(meta.meta)
        return True

    def return_without_data(self) -> None:
        """The folder says that this node has joined as a learner, and it has no data yet."""
        if self._new_cluster:
            log.warning(
                "--new-cluster has no effect: this node was started without it before, and has "
                "joined as a learner; %s",
                _FOUND,
            )

    def enter_known(
        self, mine: FolderIdentity, files: MemberFiles, make_id: Callable[[], bytes]
    ) -> bool:
        """Join a cluster that is stated to be new, as a voter or a learner.

        Returns whether it joined; False until all other nodes have connected.

        The node with the smallest index draws the cluster's id, unless a node has one already; the
        others use the id that they receive.
        """
        meta = files.meta
        new = is_new(mine, self._others, self._heard) if self._new_cluster else None
        if new is None:
            return False
        if not new:
            log.warning(
                "another node has a different log, or its cluster file has other members: this "
                "node joins as a learner"
            )
            meta.save(meta.meta)
            return True
        cluster = self._known_id()
        if not cluster:
            if min([self._node, *self._others]) != self._node:
                return False
            cluster = make_id()
        files.begin_alike(cluster)
        meta.save(replace(meta.meta.readmitted(), cluster=cluster))
        log.info(
            "all members have the same data: this node begins as a voter of the new cluster %s",
            cluster.hex(),
        )
        return True

    def _known_id(self) -> bytes:
        """The cluster id that another node has; empty if none has one."""
        for _, one in sorted(self._heard.items()):
            if any(one.cluster):
                return one.cluster
        return b""


# ------------------------------------------------------------------------------------ greetings


class Greeting:
    """The greetings of one member. All methods belong to the loop's thread."""

    def __init__(
        self,
        member: ClusterMember,
        members: KnownMembers,
        *,
        new_cluster: bool,
        on_stale: Callable[[StaleFolderError], None],
    ) -> None:
        """`new_cluster` = the operator states that the cluster is new; `on_stale` is called when a
        peer proves that this folder must not be served.
        """
        self._member = member
        file = member.file
        others = [each.node for each in file.others]
        self._joining = Joining(file.node, others, new_cluster=new_cluster)
        self.folders = Folders(
            meta=lambda: member.files.meta,
            hello=self.hello,
            history=lambda: member.files.history(members.nodes),
            version=lambda: members.version,
            replication=lambda: member.replication,
            on_stale=on_stale,
        )
        self.silent_end: int | None = None
        """End of the log of a copy that is about to replace this folder; None at other times."""
        self._reached = FIRST_LEVEL

    def hello(self) -> Hello:
        """The HELLO to send now."""
        member, meta, replica = (
            self._member,
            self._member.files.meta.meta,
            self._member.files.replica,
        )
        joined = member.replication is not None or self.silent_end is not None
        promised = max(meta.promised_epoch, replica.epochs.last_epoch)
        end = replica.end if self.silent_end is None else self.silent_end
        config = member.config
        return Hello(config.cluster_id, config.node, joined and meta.voter, promised, end)

    def levels(self) -> Levels:
        """The feature levels that peers are checked against.

        The level that the log has reached never falls: a peer must know all that this node's
        frames may contain.
        """
        engine = self._member.node.engine.state.level
        self._reached = max(self._reached, self._member.files.replica.level, engine)
        return Levels(KNOWN_LEVEL, self._reached)

    # ------------------------------------------------------------------ joining

    @property
    def waits_for(self) -> str:
        """Why this node has not joined yet, as a text for operators."""
        return self._joining.waits_for()

    def joins_blank(self) -> bool:
        """Whether the node begins at once: in the role that its folder records, or as a learner."""
        files = self._member.files
        if files.fresh:
            return self._joining.enter_blank(files.meta)
        if not files.meta.meta.voter and not files.log_end:
            self._joining.return_without_data()
        return True

    def heard(self, peer: int, folder: FolderIdentity) -> None:
        """A peer has connected, with this folder."""
        self._joining.hear(peer, folder)

    def joins(self) -> bool:
        """Join with a folder that is not part of the cluster yet, if the greetings allow it; True
        if it joined now.
        """
        member = self._member
        if member.replication is not None or self.silent_end is not None:
            return False
        mine = self.folders.identity(member.file.node)
        return self._joining.enter_known(
            mine, member.files, lambda: member.machine.random_bytes(CLUSTER_ID_SIZE)
        )
