"""The oracle that a member runs: raftos elects, unless there is nobody else to elect."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from delaylog.broker.cluster.config import ClusterConfig
from delaylog.broker.cluster.secret import KeyUse
from delaylog.replication.oracle import LeaderOracle, StaticOracle
from delaylog.replication.watermark import EpochTick
from delaylog.storage.file_system import FileSystem

if TYPE_CHECKING:
    from delaylog.broker.cluster.member import ClusterMember


class RunningOracle(LeaderOracle, Protocol):
    """An oracle that lives in the event loop."""

    async def start(self) -> None:
        """Take part."""

    async def stop(self) -> None:
        """Take no further part."""

    @property
    def failure(self) -> Exception | None:
        """Why it takes no part any more."""

    @property
    def refused(self) -> Mapping[str, int]:
        """How many datagrams were refused, by reason."""


class OnlyNode(StaticOracle):
    """A cluster of one."""

    failure: Exception | None = None
    refused: Mapping[str, int] = MappingProxyType({})

    async def start(self) -> None:
        """There is nothing to do."""

    async def stop(self) -> None:
        """There is nothing to do."""


def make_oracle(fs: FileSystem, folder: str, member: ClusterMember) -> RunningOracle:
    """The oracle of a member's cluster. Raises ClusterError, also when raftos is not installed."""
    config: ClusterConfig = member.config
    if not config.others:
        return OnlyNode(config.node, config.node)
    # Only who runs a cluster needs raftos.
    from delaylog.replication.raftos_oracle import OracleSettings, RaftosOracle, Standing

    def tick() -> EpochTick | None:
        replication = member.replication
        leader = None if replication is None else replication.leader
        return leader.order.tick if leader is not None and leader.serving else None

    def accept_tick(tick: EpochTick) -> None:
        if member.replication is not None:
            member.replication.accept_tick(tick)

    def standing() -> Standing | None:
        replication = member.replication
        if replication is None or not replication.votes or member.lags or member.stands_back:
            return None
        return Standing(member.files.last_begin[0], member.files.log_end)

    settings = OracleSettings(
        cluster_id=config.cluster_id,
        secret=config.key(KeyUse.ELECTION),
        tick=tick,
        accept_tick=accept_tick,
        standing=standing,
    )
    members = {member.node: member.election for member in config.members}
    return RaftosOracle(fs, folder, config.node, members, settings)
