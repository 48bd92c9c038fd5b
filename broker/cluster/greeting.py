"""The greetings that members exchange when they connect, by which a folder joins the cluster.

A greeting is HELLO, the feature levels and the identity of the data folder. A folder that is not
part of the cluster yet joins once the greetings of the other nodes decide what it becomes; see
members/joining.py.
"""

from __future__ import annotations

from collections.abc import Callable

from delaylog.broker.cluster.member_view import MemberView
from delaylog.broker.cluster.members.folders import Folders, StaleFolderError
from delaylog.broker.cluster.members.joining import Joining
from delaylog.broker.cluster.members.known_members import KnownMembers
from delaylog.broker.cluster.peers import Levels
from delaylog.replication.configuration import CLUSTER_ID_SIZE
from delaylog.replication.messages import FolderIdentity, Hello
from delaylog.storage.log.levels import FIRST_LEVEL, KNOWN_LEVEL


class Greeting:
    """The greetings of one member. All methods belong to the loop's thread."""

    def __init__(
        self,
        member: MemberView,
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
