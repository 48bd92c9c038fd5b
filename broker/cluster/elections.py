"""Makes the election of a member's cluster: by raftos, or of the only node."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from types import MappingProxyType

from delaylog.broker.cluster.config import Address, ClusterConfig
from delaylog.broker.cluster.config.secret import KeyUse
from delaylog.broker.cluster.member import ClusterMember
from delaylog.broker.cluster.member_oracle import Election, MemberOracle
from delaylog.replication.errors import ClusterError
from delaylog.replication.oracle import StaticOracle
from delaylog.replication.watermark import EpochTick
from delaylog.storage.files.file_system import FileSystem


class OnlyNode(StaticOracle):
    """The election of a cluster of one node."""

    failure: Exception | None = None
    refused: Mapping[str, int] = MappingProxyType({})

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    def change_members(self, members: Mapping[int, Address]) -> bool:
        """False when other nodes join: they need another election."""
        return len(members) == 1


def require_election() -> None:
    """Raise RaftosMissingError if raftos, which several nodes need, is not installed."""
    import delaylog.replication.raftos_oracle  # noqa: F401


def require_port(address: Address) -> None:
    """Raise ClusterError if elections cannot listen on this address, which one node never tries."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(address)
        except OSError as error:
            host, port = address
            raise ClusterError(
                f"elections need the UDP port {host}:{port}, which cannot be used: {error}"
            ) from None


def require_oracle(config: ClusterConfig) -> None:
    """Raise RaftosMissingError, before a folder is changed, if `make_oracle` would raise it."""
    if config.others:
        require_election()


def make_oracle(fs: FileSystem, folder: str, member: ClusterMember) -> MemberOracle:
    """The oracle of a member's cluster. Raises ClusterError, also when raftos is not installed."""
    return MemberOracle(lambda: _make(fs, folder, member), lambda: electors(member))


def electors(member: ClusterMember) -> dict[int, Address]:
    """UDP addresses of the nodes that elect: the voters, and this node, which may be a learner."""
    deciding = {*member.members.deciding, member.config.node}
    return {each.node: each.election for each in member.config.members if each.node in deciding}


def _make(fs: FileSystem, folder: str, member: ClusterMember) -> Election:
    config = member.config
    members = electors(member)
    if len(members) == 1:
        return OnlyNode(config.node, config.node)
    # Imported here, since a broker without a cluster needs no raftos.
    from delaylog.replication.raftos_oracle import LogState, OracleSettings, RaftosOracle

    def tick() -> EpochTick | None:
        replication = member.replication
        leader = None if replication is None else replication.leader
        return leader.order.tick if leader is not None and leader.serving else None

    def accept_tick(tick: EpochTick) -> None:
        if member.replication is not None:
            member.replication.accept_tick(tick)

    def log_state() -> LogState | None:
        replication = member.replication
        if (
            replication is None
            or not replication.may_lead
            or member.lags
            or (member.fitness.stands_back(member.machine.boot_ms()))
        ):
            return None
        return LogState(member.files.last_begin[0], member.files.log_end)

    settings = OracleSettings(
        cluster_id=config.cluster_id,
        secret=config.key(KeyUse.ELECTION),
        tick=tick,
        accept_tick=accept_tick,
        log_state=log_state,
        listen=member.file.listen_election,
    )
    return RaftosOracle(fs, folder, config.node, members, settings)
