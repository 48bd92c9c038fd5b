"""The oracle that a member runs: raftos elects, unless there is nobody else to elect."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from delaylog.broker.cluster.config import Address, ClusterConfig
from delaylog.broker.cluster.secret import KeyUse
from delaylog.replication.errors import ClusterError
from delaylog.replication.oracle import LeaderOracle, StaticOracle
from delaylog.replication.watermark import EpochTick
from delaylog.storage.files.file_system import FileSystem

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


class Election(RunningOracle, Protocol):
    """One that elects among members that may change."""

    def change_members(self, members: Mapping[int, Address]) -> bool:
        """Elect among these from now on; False if that takes another oracle."""


class OnlyNode(StaticOracle):
    """A cluster of one."""

    failure: Exception | None = None
    refused: Mapping[str, int] = MappingProxyType({})

    async def start(self) -> None:
        """There is nothing to do."""

    async def stop(self) -> None:
        """There is nothing to do."""

    def change_members(self, members: Mapping[int, Address]) -> bool:
        """Others take another oracle."""
        return len(members) == 1


def require_election() -> None:
    """Raise RaftosMissingError if a cluster of several nodes could not elect here."""
    import delaylog.replication.raftos_oracle  # noqa: F401


def require_port(address: Address) -> None:
    """Raise ClusterError if elections cannot listen there; a lone node has not tried so far."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(address)
        except OSError as error:
            host, port = address
            raise ClusterError(
                f"elections need the UDP port {host}:{port}, which cannot be used: {error}"
            ) from None


def require_oracle(config: ClusterConfig) -> None:
    """Raise RaftosMissingError now if `make_oracle` would: before a folder is changed."""
    if config.others:
        require_election()


def make_oracle(fs: FileSystem, folder: str, member: ClusterMember) -> MemberOracle:
    """The oracle of a member's cluster. Raises ClusterError, also when raftos is not installed."""
    return MemberOracle(lambda: _make(fs, folder, member), lambda: electors(member))


class MemberOracle:
    """Elects among the members that decide, however they change; a lone node elects itself."""

    def __init__(
        self, make: Callable[[], Election], members: Callable[[], dict[int, Address]]
    ) -> None:
        """`members` = the UDP addresses of those who elect, this node included."""
        self._make = make
        self._members = members
        self._inner = make()
        self._among = members()
        self._started = False
        self._changing: asyncio.Task[None] | None = None
        self.failure_of_change: Exception | None = None

    async def start(self) -> None:
        """Take part."""
        self._started = True
        await self._inner.start()

    async def stop(self) -> None:
        """Take no further part."""
        self._started = False
        if self._changing is not None:
            await asyncio.wait([self._changing])
        await self._inner.stop()

    def look(self) -> None:
        """The members may be others. Nothing happens while an earlier change is under way."""
        members = self._members()
        if members == self._among or self._changing is not None or not self._started:
            return
        self._among = members
        if not self._inner.change_members(members):
            self._changing = asyncio.get_running_loop().create_task(self._exchange())

    async def _exchange(self) -> None:
        try:
            await self._inner.stop()
            self._inner = self._make()
            if self._started:
                await self._inner.start()
        except Exception as error:
            # The node stops for it at its next look.
            self.failure_of_change = error
        finally:
            self._changing = None

    @property
    def failure(self) -> Exception | None:
        """Why it takes no part any more."""
        return self.failure_of_change or self._inner.failure

    @property
    def refused(self) -> Mapping[str, int]:
        """How many datagrams were refused, by reason."""
        return self._inner.refused

    def suggests(self, now_ms: int) -> bool:
        """Whether this node is chosen."""
        return self._inner.suggests(now_ms)

    def leader(self, now_ms: int) -> int | None:
        """Who is chosen, as far as is known."""
        return self._inner.leader(now_ms)

    def resign(self, now_ms: int, until_ms: int) -> None:
        """Let others be chosen."""
        self._inner.resign(now_ms, until_ms)

    def transfer(self, target: int, now_ms: int) -> None:
        """Have another one chosen."""
        self._inner.transfer(target, now_ms)


def electors(member: ClusterMember) -> dict[int, Address]:
    """Who elects: the nodes that decide, and this one, which may be a learner."""
    deciding = {*member.members.deciding, member.config.node}
    return {each.node: each.election for each in member.config.members if each.node in deciding}


def _make(fs: FileSystem, folder: str, member: ClusterMember) -> Election:
    config: ClusterConfig = member.config
    members = electors(member)
    if len(members) == 1:
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
        if replication is None or not replication.may_lead or member.lags or member.stands_back:
            return None
        return Standing(member.files.last_begin[0], member.files.log_end)

    settings = OracleSettings(
        cluster_id=config.cluster_id,
        secret=config.key(KeyUse.ELECTION),
        tick=tick,
        accept_tick=accept_tick,
        standing=standing,
        listen=member.file.me.election,
    )
    return RaftosOracle(fs, folder, config.node, members, settings)
