"""Opens the files that a member's replication and engine share: log, epochs, meta and tick slots.

The engine starts from the newest checkpoint and applies only committed frames; replication needs
the whole log and its epochs. The files are opened here, before either of them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from delaylog.broker.backup.restore import epoch_ahead
from delaylog.broker.cluster.config import ClusterConfig
from delaylog.broker.cluster.copies.incoming_folder import install
from delaylog.broker.cluster.members.folders import history_of
from delaylog.broker.rules.addresses import host_port
from delaylog.replication.configuration import CLUSTER_SIZES, Configuration
from delaylog.replication.epochs import EpochEntries
from delaylog.replication.errors import ClusterError, MetaDamagedError
from delaylog.replication.meta import META, Meta, MetaFile, load_meta
from delaylog.replication.physical_disk import PhysicalReplicaLog, SlotTicks
from delaylog.storage.checkpoint import load_newest
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.file_system import FileSystem, parent_of
from delaylog.storage.files.space_reserve import RESERVE, SpaceReserve
from delaylog.storage.layout import FRAME_HEADER_SIZE
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.tick_slots import TickSlots

RECENT_BYTES_MAX: Final = 4 << 20
"""Size of the cache of recent frames, which followers and this node's engine read soon."""

log = logging.getLogger("delaylog.cluster")


@dataclass(frozen=True)
class MemberFiles:
    """The files of one member, open."""

    physical: PhysicalLog
    replica: PhysicalReplicaLog
    slots: TickSlots
    ticks: SlotTicks
    meta: MetaFile
    start: int
    """Position of the newest checkpoint: all frames before it are committed."""
    committed: int
    """End of the frames that a checkpoint or the tick shows to be committed."""
    before_last_ms: int
    """Leader time of the second-to-last frame."""
    fresh: bool
    """Whether there was no meta file: the folder is not part of the cluster yet."""

    @property
    def log_end(self) -> int:
        """Where this node's log ends."""
        return self.replica.end

    @property
    def durable_end(self) -> int:
        """End of the durable part of this node's log."""
        return self.replica.durable_end

    def history(self, members: tuple[int, ...]) -> bytes:
        """Identifies the history of this log; see `FolderIdentity`."""
        entries = self.replica.epochs.entries()
        # A joined node forgets epochs from before its log: see `EpochTable.forget`.
        gone = sum(start < self.physical.first_position for _, start in entries)
        return history_of(entries[max(gone - 1, 0) :], self.replica.end, members)

    def begin_alike(self, cluster: bytes) -> None:
        """Renumber the epoch that a restore began: all founders derive its number from `cluster`.

        `cluster` = the cluster's id. Each restore draws a random epoch, and the log with the
        greatest epoch counts as the newest: frames that a majority without that node has committed
        would be lost. After a kill during this call the next start repeats it.
        """
        (led, _), (_, begin) = ((0, 0), (0, 0), *self.replica.epochs.entries())[-2:]
        bare = self.replica.end - begin == FRAME_HEADER_SIZE and begin >= self.committed
        if not led or not bare:
            return
        epoch = epoch_ahead(led, int.from_bytes(cluster))
        tick = self.ticks.tick._replace(epoch=epoch)
        self.replica.begin_anew(tick, self.before_last_ms)
        self.ticks.write(tick)
        self.slots.sync()

    @property
    def last_begin(self) -> tuple[int, int]:
        """The newest epoch in the log and its first position; zeros for an empty log."""
        entries = self.replica.epochs.entries()
        return entries[-1] if entries else (0, 0)

    def close(self) -> None:
        """Close the files. Appended frames that are not written yet are lost."""
        self.physical.close()
        self.slots.close()


def open_member(
    fs: FileSystem,
    folder: str,
    config: ClusterConfig,
    *,
    incarnation: int,
) -> MemberFiles:
    """Recover the log of a member. Raises ClusterError, CorruptionError and OSError.

    `incarnation` = a random number, drawn for this call.
    """
    if not fs.exists(folder):
        fs.mkdir(folder)
        fs.sync_folder(parent_of(folder))
    if install(fs, folder):
        log.warning("a copy of the leader's folder has replaced the data of this one")
    meta, fresh = _open_meta_on(fs, folder, config, incarnation)
    saved = load_newest(fs, folder)
    start = 0 if saved is None else saved.position
    slots = TickSlots(fs, f"{folder}/tick")
    physical = PhysicalLog(
        fs,
        f"{folder}/log",
        recent_bytes_max=RECENT_BYTES_MAX,
        node=config.node,
    )
    entries: EpochEntries = ()
    configuration = None
    if saved is not None:
        entries = tuple(saved.epochs)
        configuration = Configuration.decode(saved.members.get("members", b""))
    replica = PhysicalReplicaLog(physical, slots, entries, configuration)
    durable_end = max(start, slots.newest.durable_end if slots.newest else 0)
    before_last_ms = last_ms = 0 if saved is None else saved.told_ms
    for frame in physical.recover(start, durable_end):
        replica.note(frame)
        before_last_ms, last_ms = last_ms, frame.header.leader_time_ms
    # A learner without a log, whose data was set aside, reads the members from the log to come.
    if replica.epochs.configuration is None and not fresh and (meta.meta.voter or replica.end):
        _check_founders(meta.meta, config, f"{folder}/{META}")
    ticks = SlotTicks(slots, physical)
    # A tick covers committed frames only.
    committed = max(start, min(ticks.tick.position, replica.end))
    return MemberFiles(
        physical, replica, slots, ticks, meta, start, committed, before_last_ms, fresh
    )


def new_learner(config: ClusterConfig) -> Meta:
    """The meta of a learner: a node that may have given promises which it does not know.

    It names the members of the cluster file only if a cluster can be founded with that number.
    """
    members = {member.node: host_port(member.peer) for member in config.members}
    if len(members) not in CLUSTER_SIZES:
        members = {}
    return Meta.learner(config.cluster_id, config.node, members)


def _check_founders(meta: Meta, config: ClusterConfig, path: str) -> None:
    """Raise ClusterError unless the cluster file names the founders; no log has members yet."""
    said = {member.node for member in config.members}
    if meta.members and meta.members.keys() != said:
        raise ClusterError(
            f"{path} knows the members {sorted(meta.members)}, the cluster file {sorted(said)}: "
            "the file must name the founders until the log knows the members, which is once one "
            "of them has led; then change members by `delaylog cluster add`"
        )


def _open_meta_on(
    fs: FileSystem, folder: str, config: ClusterConfig, incarnation: int
) -> tuple[MetaFile, bool]:
    """Open the meta file; on a full disk with space from the reserve, which no engine uses yet."""
    path = f"{folder}/{META}"
    try:
        return _open_meta(fs, path, config, incarnation)
    except DiskFullError:
        reserve = SpaceReserve(fs, f"{folder}/{RESERVE}", 0)
        try:
            return reserve.making_room(lambda: _open_meta(fs, path, config, incarnation))
        finally:
            reserve.close()


def _open_meta(
    fs: FileSystem, path: str, config: ClusterConfig, incarnation: int
) -> tuple[MetaFile, bool]:
    learner = new_learner(config).reborn(incarnation)
    try:
        meta = load_meta(fs, path)
    except MetaDamagedError as error:
        # The node may have promised anything: it must not vote until it is readmitted.
        log.error("%s; this node goes on as a learner", error)
        return MetaFile.make(fs, path, learner), False
    if meta is None:
        # Written once the node has joined: see greeting.py.
        return MetaFile(fs, path, learner), True
    if meta.cluster_id != config.cluster_id:
        raise ClusterError(
            f"{path} belongs to another cluster than {config.name!r}: serve the folder with the "
            "cluster file that it was made for, or take an empty one"
        )
    if meta.node_id != config.node:
        raise ClusterError(
            f"{path} is that of node {meta.node_id}, not of node {config.node}: serve the folder "
            f"with --node {meta.node_id}, or give node {config.node} its own folder"
        )
    # The new incarnation is durable before any peer is told of it.
    return MetaFile.make(fs, path, meta.reborn(incarnation)), False
