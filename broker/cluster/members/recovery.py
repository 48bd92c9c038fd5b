"""`delaylog cluster recover`: one node goes on alone after a majority was lost permanently.

The lost majority may have acknowledged frames that no other node has, so only an operator may
decide this. The folder becomes that of a new cluster with one voter. It gets a new random id, so
that the lost nodes are refused if they come back, and an epoch far ahead, so that ids and receipts
that they gave out never name other messages.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from random import Random

from delaylog.broker.backup.restore import epoch_ahead
from delaylog.broker.cluster.config import ClusterConfig
from delaylog.broker.cluster.member_files import MemberFiles, open_member
from delaylog.replication.configuration import CLUSTER_ID_SIZE, Configuration
from delaylog.replication.epochs import epoch_counter, epoch_node, make_epoch
from delaylog.replication.errors import ClusterError
from delaylog.storage.files.file_system import FileSystem


@dataclass(frozen=True, slots=True)
class Survivor:
    """The data of one folder. Of several folders the greatest `epoch`, then `end`, is the best."""

    node: int
    epoch: tuple[int, int]
    """Counter and node of the log's newest epoch."""
    end: int
    """Position where the log ends."""
    committed: int
    """The log before this position was committed, and is complete here."""
    told_ms: int
    """Unix time up to which the leader had handed out, by the newest tick here."""
    lost: tuple[int, ...]
    """The other voters, which are excluded."""


def look_at_survivor(
    fs: FileSystem, folder: str, config: ClusterConfig, incarnation: int
) -> Survivor:
    """Read what a folder has. Raises ClusterError, CorruptionError and OSError."""
    with closing(_open(fs, folder, config, incarnation)) as files:
        return _survivor(files, config.node)


def recover_alone(
    fs: FileSystem,
    folder: str,
    config: ClusterConfig,
    *,
    now_ms: int,
    random: Random,
) -> Survivor:
    """Make the node the only voter of a new cluster. Raises what `look_at_survivor` raises."""
    with closing(_open(fs, folder, config, random.getrandbits(63) | 1)) as files:
        found = _survivor(files, config.node)
        before = _members(files)
        known = max(files.meta.meta.promised_epoch, files.last_begin[0])
        ahead = epoch_ahead(known, random.getrandbits(64))
        epoch = make_epoch(epoch_counter(ahead), config.node)
        cluster = random.randbytes(CLUSTER_ID_SIZE)
        after = Configuration(
            (config.node,),
            removed=tuple(sorted({*before.nodes, *before.removed} - {config.node})),
            version=before.version + 1,
            cluster=cluster,
            contacts={config.node: config.me.contact},
        )
        # The others are excluded before the log states that this node leads.
        promised = replace(files.meta.meta, promised_epoch=epoch, voter=True, cluster=cluster)
        files.meta.save(promised)
        tick = files.ticks.tick._replace(epoch=epoch, wall_ms=now_ms)
        files.replica.append_begin(tick, now_ms, after)
        files.physical.write_pending()
        files.physical.sync()
        files.ticks.write(tick)
        files.slots.sync()
        return found


def _open(fs: FileSystem, folder: str, config: ClusterConfig, incarnation: int) -> MemberFiles:
    files = open_member(fs, folder, config, incarnation=incarnation)
    problem = None
    if files.fresh:
        problem = f"{folder} is not the data folder of a node of a cluster"
    elif not files.log_end:
        problem = f"{folder} has no log: recover from a node with data"
    if problem is not None:
        files.close()
        raise ClusterError(problem)
    return files


def _members(files: MemberFiles) -> Configuration:
    return files.replica.epochs.configuration or files.meta.meta.founding()


def _survivor(files: MemberFiles, node: int) -> Survivor:
    tick = files.ticks.tick
    epoch = files.last_begin[0]
    return Survivor(
        node=node,
        epoch=(epoch_counter(epoch), epoch_node(epoch)),
        end=files.log_end,
        committed=max(files.start, tick.position),
        told_ms=tick.wall_ms,
        lost=tuple(other for other in _members(files).deciding if other != node),
    )
