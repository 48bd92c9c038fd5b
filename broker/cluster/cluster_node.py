"""Opens the node of a cluster: makes files, engine, node, member and oracle, and connects them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.cluster.config import ClusterConfig, check_founding, load_cluster
from delaylog.broker.cluster.copies.damaged_files import heal, note_damage, noted_damage
from delaylog.broker.cluster.copies.exchange import Copies
from delaylog.broker.cluster.elections import make_oracle, prepare_secrets
from delaylog.broker.cluster.leading.succession import Succession
from delaylog.broker.cluster.member import ClusterMember
from delaylog.broker.cluster.member_files import MemberFiles, open_member
from delaylog.broker.cluster.members.operator_calls import OperatorCalls
from delaylog.broker.engine.engine import Engine, Membership
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.engine.keyspace.keyspace_files import LoadedKeyspace
from delaylog.broker.host.clock import BrokerClock
from delaylog.broker.host.config import Config
from delaylog.broker.host.machine import Machine
from delaylog.broker.host.settings import ConfigError, cannot_listen
from delaylog.broker.host.watch.reloader import Use
from delaylog.broker.rules.addresses import host_port
from delaylog.replication.errors import ClusterError
from delaylog.replication.meta import META
from delaylog.storage.errors import CorruptionError, StorageError, damage_of
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.files.os_file_system import OsFileSystem

LEAVE_TRIES: Final = 2
"""Hand-overs that a leader tries before it leaves without a successor."""

MakeEngine = Callable[[Membership, LoadedKeyspace | None], Engine]

log = logging.getLogger("delaylog.cluster")


@dataclass(frozen=True)
class ClusterNode:
    """A broker's node and its membership of a cluster."""

    node: ServingNode
    member: ClusterMember

    @property
    def files(self) -> MemberFiles:
        """The member's open files."""
        return self.member.files

    async def start(self) -> None:
        """Take part. Raises ConfigError if this node cannot listen on its peer address."""
        try:
            await self.member.start()
        except OSError as error:
            raise cannot_listen(host_port(self.member.file.listen), error) from None

    def read_secret(self) -> Use:
        """Read the file of the cluster's secret again, on a thread. Raises ConfigError.

        Open connections go on; new ones use the new secret.
        """
        cluster = self.member.config
        try:
            values = cluster.secret.look()
        except ClusterError as error:
            raise ConfigError(str(error)) from None
        prepare_secrets(values, cluster.cluster_id)

        async def use() -> None:
            cluster.secret.values = values
            log.info("the cluster's secret: %s", cluster.secret)

        return use

    def note_damage(self, error: CorruptionError) -> None:
        """Record the damage that ends the node: its next start sets the folder aside if it can."""
        if self.member.config.others:
            with suppress(OSError, StorageError):
                note_damage(OsFileSystem(), self.node.engine.folder, error)

    async def leave(self) -> None:
        """Hand over before the node ends, if it leads."""
        for _ in range(LEAVE_TRIES):
            # An operator may have begun one, or this node, as it is unfit.
            await self.member.until_handed_over()
            if not self.member.leading or not self.member.config.others:
                return
            try:
                if await self.member.hand_over(None) is not None:
                    return
            except NotLeadingError:
                return
        log.warning("no node took over; the others elect a leader once this node is gone")


async def open_cluster_node(
    config: Config,
    clock: BrokerClock,
    make_engine: MakeEngine,
    on_fatal: Callable[[BaseException], None],
    machine: Machine,
) -> ClusterNode:
    """Open the folder of a member. Damaged data is set aside if another voter can give a copy.

    Raises ClusterError, CorruptionError and OSError.
    """
    assert config.cluster is not None, "a cluster is configured"
    cluster = load_cluster(config.cluster, node=config.cluster_node)
    fs = OsFileSystem()
    try:
        noted = noted_damage(fs, config.data_dir)
        if noted is not None:
            raise noted
        return _open_place(fs, config, cluster, clock, make_engine, on_fatal, machine)
    except (StorageError, OSError) as error:
        damage = damage_of(error)
        if damage is None:
            raise
        await heal(fs, config.data_dir, cluster, damage, machine)
    return _open_place(fs, config, cluster, clock, make_engine, on_fatal, machine)


def _open_place(
    fs: FileSystem,
    config: Config,
    cluster: ClusterConfig,
    clock: BrokerClock,
    make_engine: MakeEngine,
    on_fatal: Callable[[BaseException], None],
    machine: Machine,
) -> ClusterNode:
    def open_files() -> MemberFiles:
        return open_member(
            fs,
            config.data_dir,
            cluster,
            incarnation=int.from_bytes(machine.random_bytes(8)) >> 1 | 1,
        )

    def engine_over(files: MemberFiles, loaded: LoadedKeyspace | None = None) -> Engine:
        shared = Membership(
            files.physical, files.slots, member.committed, member.drop_log, member.may_append
        )
        return make_engine(shared, loaded)

    def reopen() -> tuple[MemberFiles, Engine]:
        files = open_files()
        return files, engine_over(files)

    if config.new_cluster and not fs.exists(f"{config.data_dir}/{META}"):
        check_founding(cluster.members)
    files = open_files()
    if files.fresh and files.log_end and not config.new_cluster:
        if files.replica.epochs.configuration is not None:
            raise ClusterError(
                f"{config.data_dir} belongs to a member, but its file `meta` with the promises is "
                "missing: empty the folder, and the node joins as a learner"
            )
        raise ClusterError(
            f"{config.data_dir} belongs to a broker without a cluster; joining one would lose its "
            "data: restore one backup of it on all nodes and start each with --new-cluster"
        )
    member = ClusterMember(
        cluster, files, new_cluster=config.new_cluster, on_fatal=on_fatal, machine=machine
    )
    node = ServingNode(engine_over(member.files), clock, on_fatal, machine=machine)
    succession = Succession(
        node, lambda loaded: engine_over(member.files, loaded), member.committed, on_fatal
    )
    copies = Copies(fs, config.data_dir, member, node, succession, reopen)
    oracle = make_oracle(fs, config.data_dir, member)
    member.attach(node, oracle, succession, copies, OperatorCalls(member))
    return ClusterNode(node, member)
