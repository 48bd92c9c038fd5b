"""The members of the cluster as one node knows them: from the cluster file first, then the log.

The newest configuration in the log is in force, committed or not. Connections, elections and names
follow it. The leader writes the founding members and the cluster's id into a log without them.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delaylog.broker.cluster.config import ClusterConfig
from delaylog.broker.cluster.members.node_status import Status, encode_status
from delaylog.replication.configuration import CLUSTER_ID_SIZE, Configuration
from delaylog.replication.node import ReplicationNode
from delaylog.storage.log.frames import FIRST_LEVEL, KNOWN_LEVEL

if TYPE_CHECKING:
    from delaylog.broker.cluster.member import ClusterMember

log = logging.getLogger("delaylog.cluster")


class KnownMembers:
    """The members that one node knows."""

    def __init__(self, member: ClusterMember, file: ClusterConfig) -> None:
        """`file` = the cluster file."""
        self._member = member
        self.config = file
        """The cluster file with the members of the log instead of its own."""
        self.removed = False
        """Whether another node has stated that this one was removed."""
        self._removed_by = 0
        """The version of the configuration that removed it."""
        self._parted = True
        """Whether the nodes that the newest configuration removes were notified and dropped."""
        self._followed: Configuration | None = None
        self._passed: list[Configuration] = []
        """Configurations that were read since the folders of removed nodes were forgotten."""
        self._addresses = {**file.peers}
        """Addresses of the nodes that this one connects to."""

    @property
    def version(self) -> int:
        """The version of the configuration in force."""
        return 0 if self._followed is None else self._followed.version

    @property
    def nodes(self) -> tuple[int, ...]:
        """Indexes of all members, in ascending order."""
        return tuple(each.node for each in self.config.members)

    @property
    def deciding(self) -> tuple[int, ...]:
        """Voters before and after the change under way; all members while none is known."""
        replication = self._member.replication
        known = () if replication is None else replication.configuration.deciding
        return known or self.nodes

    def name_of(self, node: int) -> str:
        """The name of a node."""
        return self.config.name_of(node)

    def describe(self, node: int) -> str:
        """A node for log lines: its index and its name."""
        return self.config.describe(node)

    def follow(self, replication: ReplicationNode) -> None:
        """Put the newest configuration of the log into force."""
        configuration = replication.configuration
        if configuration is self._followed:
            return
        before = configuration if self._followed is None else self._followed
        self._followed = configuration
        self.config = self.config.following(configuration)
        # A removed node is dropped once its removal is committed. A node that is behind in the log
        # keeps its connections, since it catches up over one of them.
        known, now = self._addresses, self.config.peers
        self._addresses = now | known if self._is_behind(configuration) else known | now
        self._member.transport.set_addresses(self._addresses)
        self._parted = False
        if configuration.version < before.version:
            # The log was cut: the peers assume that this node knows the later configuration.
            for peer in self._member.transport.connected():
                self._member.transport.drop(peer, "the change of members was not committed")
        if configuration.version > self._removed_by and self.config.node in configuration.nodes:
            self.removed = False
        if configuration.version:
            log.info(
                "members by configuration %d: voters %s, learners %s",
                configuration.version,
                list(configuration.deciding),
                list(configuration.learners),
            )
        passed = self._member.files.replica.epochs.configurations(before.version)
        self._passed += [*passed, configuration]
        self._forget_folders()

    def _part(self, replication: ReplicationNode) -> None:
        """Once a configuration is committed, notify the nodes that it removes, and drop them. Nodes
        that are away are notified when they connect.

        A node that is behind in the log drops none, since a node that it does not know as a member
        may lead already.
        """
        configuration, transport = replication.configuration, self._member.transport
        if self._is_behind(configuration):
            if self._parted:
                self._parted = False
                self._addresses = self._member.file.peers | self._addresses
                transport.set_addresses(self._addresses)
            return
        if self._parted or not self._is_committed(replication):
            return
        self._parted = True
        farewell = encode_status(Status(removed=True, version=configuration.version))
        gone = {*configuration.removed}
        for peer in transport.connected() & gone:
            transport.send(peer, farewell)
        transport.flush()
        transport.set_removed(gone, farewell)
        if configuration.version:
            self._addresses = {**self.config.peers}
        transport.set_addresses(self._addresses)

    def said(self) -> dict[str, Any]:
        """The fields of this node's status with the folders that it remembers."""
        return {"met": self._member.folders.seen}

    def all_have_met(self, node: int) -> bool:
        """Whether every other connected voter remembers the folder that this node remembers.

        Only then a voter that lost its folder is counted again: if the lost folder comes back, all
        of them refuse it.
        """
        member = self._member
        incarnation = member.folders.seen.get(node)
        for other in self.deciding:
            if other in (node, self.config.node):
                continue
            if other not in member.transport.connected():
                continue
            status = member.statuses.of(other)
            if status is None or status.met.get(node) != incarnation:
                return False
        return True

    def _forget_folders(self) -> None:
        """Forget the folders of removed nodes, which may be added again with empty folders.

        The folder of a connected node is kept if the newest configuration has the node, or if this
        node may not know the newest one yet: a blank node meets the others before it reads the
        configurations that lacked them. On a full disk the next look does it.
        """
        passed, meta = self._passed, self._member.files.meta
        if not passed:
            return
        known = [{*each.nodes} for each in passed if each.version]
        newest, behind = passed[-1], self._is_behind(passed[-1])
        gone = {
            peer
            for peer, folder in self._member.folders.seen.items()
            if any(peer not in nodes for nodes in known)
            and not ((behind or peer in newest.nodes) and self._is_connected(peer, folder))
        }
        if gone:
            meta.save(meta.meta.has_forgotten(gone))
        self._passed = []

    def _is_connected(self, peer: int, incarnation: int) -> bool:
        """Whether a node is connected with this folder."""
        folder = self._member.transport.folder_of(peer)
        return folder is not None and folder.incarnation == incarnation

    def _is_behind(self, configuration: Configuration) -> bool:
        """Whether another node knows a later configuration than this one."""
        transport = self._member.transport
        folders = [transport.folder_of(peer) for peer in transport.connected()]
        return any(each and each.version > configuration.version for each in folders)

    def hear(self, status: Status) -> None:
        """Another node has sent its status."""
        if status.removed and not self.removed:
            replication = self._member.replication
            known = 0 if replication is None else replication.configuration.version
            if status.version <= known:
                # That node is behind: it does not know yet that this node was added again.
                return
            self.removed, self._removed_by = True, status.version
            log.error(
                "this node was removed from the cluster: stop it. To add it again, empty its "
                "data folder and run `delaylog cluster add`"
            )

    def look(self, replication: ReplicationNode) -> None:
        """Follow the log, store the cluster's id, and complete the log; called by the poll."""
        self._raise_level()
        self.follow(replication)
        self._part(replication)
        self._keep_id(replication)
        self._identify(replication)
        self._forget_folders()

    def _raise_level(self) -> None:
        """Raise the log's level to the lowest that the members know. One that is away may know the
        first level only.
        """
        member = self._member
        node = member.node
        if not member.leading or node.engine.state.level >= KNOWN_LEVEL or not member.may_append():
            return
        known = [member.transport.known_level(other.node) for other in self.config.others]
        level = min([KNOWN_LEVEL, *(FIRST_LEVEL if each is None else each for each in known)])
        if node.engine.raise_level(level, node.clock.now_ms()):
            member.note_level()
            log.info("all members know feature level %d: the cluster is at it now", level)
            node.log_commits.kick()

    def _keep_id(self, replication: ReplicationNode) -> None:
        """Store the cluster's id in the folder once it is committed.

        A restored log that was cut may end in the configuration of the cluster that was backed up,
        whose id must not be stored.
        """
        cluster, meta = replication.configuration.cluster, self._member.files.meta
        if cluster and not meta.meta.cluster and self._is_committed(replication):
            meta.save(replace(meta.meta, cluster=cluster))

    def _is_committed(self, replication: ReplicationNode) -> bool:
        return replication.commit > self._member.files.last_begin[1]

    def _identify(self, replication: ReplicationNode) -> None:
        """Write members and cluster id into a log without them."""
        member, configuration = self._member, replication.configuration
        if configuration.version or not member.leading or not member.may_append():
            return
        contacts = {each.node: each.contact for each in self.config.members}
        cluster = member.files.meta.meta.cluster or member.machine.random_bytes(CLUSTER_ID_SIZE)
        replication.leadership.change(configuration.with_contacts(contacts, cluster))
