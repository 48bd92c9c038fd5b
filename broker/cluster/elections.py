"""Makes the oracle of a member: over the connections between nodes, and by raftos if possible.

raftos is optional. It is used, without any setting, if it is installed and all voters have numeric
IPv4 addresses. Nodes with it and nodes without it elect together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from delaylog.broker.cluster.config import KeyUse, derive_key
from delaylog.broker.cluster.member import ClusterMember
from delaylog.broker.cluster.member_oracle import Election, MemberOracle
from delaylog.broker.rules.addresses import Address, is_ipv4
from delaylog.replication.epochs import EpochTick
from delaylog.replication.oracle import LogState, PeerOracle, View
from delaylog.storage.files.file_system import FileSystem


def make_oracle(fs: FileSystem, folder: str, member: ClusterMember) -> MemberOracle:
    """The oracle of a member's cluster."""

    def view() -> View | None:
        replication = member.replication
        if replication is None:
            return None
        leader = replication.leader
        return View(
            configuration=replication.configuration,
            votes=replication.votes,
            log=_log_state(member),
            role=replication.role,
            gate_age_ms=None if leader is None else leader.gate.age_ms(member.machine.boot_ms()),
            peers=member.transport.connected(),
        )

    node, random = member.config.node, member.machine.random()
    peers = PeerOracle(node, view=view, send=member.transport.send, random=random)
    return MemberOracle(
        peers, lambda: _make_raftos(fs, folder, member, peers), lambda: electors(member)
    )


def electors(member: ClusterMember) -> dict[int, Address]:
    """UDP addresses of the nodes that elect: the voters, and this node, which may be a learner."""
    deciding = {*member.members.deciding, member.config.node}
    return {each.node: each.election for each in member.config.members if each.node in deciding}


def may_use_raftos(members: Mapping[int, Address]) -> bool:
    """Whether raftos can elect among these nodes: it knows a node by its numeric IPv4 address."""
    return len(members) > 1 and all(is_ipv4(host) for host, _ in members.values())


def _log_state(member: ClusterMember) -> LogState | None:
    """How complete this node's log is; None while it must not lead."""
    replication = member.replication
    if (
        replication is None
        or not replication.may_lead
        or member.lags
        or member.fitness.stands_back(member.machine.boot_ms())
    ):
        return None
    return LogState(member.files.last_begin[0], member.files.log_end)


def _make_raftos(
    fs: FileSystem, folder: str, member: ClusterMember, peers: PeerOracle
) -> Election | None:
    members = electors(member)
    if not may_use_raftos(members):
        return None
    try:
        from delaylog.replication.raftos_oracle import OracleSettings, RaftosOracle
    except ImportError:
        return None
    config = member.config

    def tick() -> EpochTick | None:
        replication = member.replication
        leader = None if replication is None else replication.leader
        return leader.order.tick if leader is not None and leader.serving else None

    def accept_tick(tick: EpochTick) -> None:
        replication = member.replication
        if replication is not None:
            # As an input, which may find the disk full.
            member.take_input(lambda: replication.accept_tick(tick))

    settings = OracleSettings(
        cluster_id=config.cluster_id,
        secrets=lambda: config.keys(KeyUse.ELECTION),
        tick=tick,
        accept_tick=accept_tick,
        log_state=lambda: _log_state(member),
        hears=lambda: peers.hears(member.machine.boot_ms()),
        stretch=lambda: peers.delays.factor(member.machine.boot_ms()),
        listen=member.file.listen_election,
    )
    return RaftosOracle(fs, folder, config.node, members, settings)


def prepare_secrets(secrets: Iterable[bytes], cluster_id: bytes) -> None:
    """Make what raftos needs of new secrets of the cluster, outside the event loop, which it would
    block for longer than a heartbeat.
    """
    with suppress(ImportError):
        from delaylog.replication.raftos_oracle.settings import prepare

        prepare((derive_key(each, cluster_id, KeyUse.ELECTION) for each in secrets), cluster_id)
