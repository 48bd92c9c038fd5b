"""The two oracles of one node: which is heard when, and how the leadership of raftos follows.

Method: a peer oracle without connections, and an election that says what the test wants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.cluster.elections import make_oracle, may_use_raftos
from delaylog.broker.cluster.member_counts import MemberCounts
from delaylog.broker.cluster.member_oracle import (
    DATAGRAM_MS_MAX,
    READMIT_EVERY_MS,
    TRANSFER_EVERY_MS,
    Candidacy,
    MemberOracle,
)
from delaylog.broker.host.machine import REAL
from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import EpochTick
from delaylog.replication.errors import ClusterError
from delaylog.replication.messages import Canvass, Message, Role, Support
from delaylog.replication.oracle import LogState, PeerOracle, View
from delaylog.replication.replica import Now
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.os_file_system import OsFileSystem

ADDRESSES = {node: (f"10.0.0.{node}", 8712) for node in (1, 2, 3)}


class Raftos:
    """An election that chooses this node if `chosen`."""

    def __init__(self) -> None:
        self.chosen = False
        self.fails: Exception | None = None
        self.failure: Exception | None = None
        self.refused: dict[str, int] = {"replayed": 1}
        self.said: list[Any] = []
        self.ages: dict[int, int | None] = {2: 100, 3: None}

    async def start(self) -> None:
        if self.fails is not None:
            raise self.fails
        self.said.append("start")

    async def stop(self) -> None:
        self.said.append("stop")

    def change_members(self, members: Mapping[int, Any]) -> bool:
        self.said.append(sorted(members))
        if any(host == "name" for host, _ in members.values()):
            raise ClusterError("no address")
        return len(members) > 1

    def suggests(self, now_ms: int) -> bool:
        return self.chosen

    def leader(self, now_ms: int) -> int | None:
        return 3

    def resign(self, now_ms: int, until_ms: int) -> None:
        self.said.append(("resign", until_ms))

    def transfer(self, target: int, now_ms: int) -> None:
        self.said.append(("transfer", target))

    def ages_ms(self) -> Mapping[int, int | None]:
        return self.ages


class Node:
    """Node 1 of three."""

    def __init__(self, *, raftos: bool = True) -> None:
        self.raftos = Raftos()
        self.members = {**ADDRESSES}
        self.sent: list[tuple[int, Message]] = []
        self.peers = PeerOracle(
            1,
            view=self.view,
            send=lambda peer, message: self.sent.append((peer, message)),
            random=Random(1),
        )
        self.oracle = MemberOracle(
            self.peers, lambda: self.raftos if raftos else None, lambda: self.members
        )

    def view(self) -> View:
        configuration, log = Configuration((1, 2, 3)), LogState(1, 1)
        return View(configuration, True, log, Role.FOLLOWER, None, [2, 3])


async def test_whom_raftos_has_chosen_asks_the_voters_first() -> None:
    """At once if it hears no leader; another one may hear the leader still."""
    node = Node()
    await node.oracle.start()
    node.oracle.look(1_000)
    node.raftos.chosen = True
    node.oracle.look(1_020)
    asked = [message for _, message in node.sent]
    assert asked == [Canvass(1, 1, 1)] * 2
    assert not node.oracle.suggests(1_020)
    node.oracle.receive(2, Support(1, granted=True), 1_022)
    assert node.oracle.suggests(1_022)


async def test_the_leadership_of_raftos_moves_to_the_leader() -> None:
    node = Node()
    await node.oracle.start()
    node.raftos.chosen = True
    for now_ms in range(10_000, 10_000 + 2 * TRANSFER_EVERY_MS, 20):
        node.oracle.hear(3, now_ms)
        node.oracle.look(now_ms)
    assert node.raftos.said == ["start", ("transfer", 3), ("transfer", 3)]


@pytest.mark.parametrize(
    ("ages", "works"),
    [
        ({2: 100, 3: None}, True),
        ({2: DATAGRAM_MS_MAX, 3: 100}, True),
        ({2: None, 3: None}, False),
        ({2: DATAGRAM_MS_MAX, 3: DATAGRAM_MS_MAX}, False),
        ({2: 1, 3: 1, 4: None, 5: None}, True),
        ({2: 1, 3: None, 4: None, 5: None}, False),
    ],
)
async def test_raftos_goes_first_while_it_hears_a_majority(
    ages: dict[int, int | None], works: bool
) -> None:
    node = Node()
    await node.oracle.start()
    node.raftos.ages = ages
    node.oracle.look(0)
    assert node.peers.guards is works


async def test_a_port_that_cannot_be_used_leaves_the_peer_oracle(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node()
    node.raftos.fails = ClusterError("UDP 10.0.0.1:8712 cannot be used")
    await node.oracle.start()
    node.oracle.look(0)
    assert not node.peers.guards
    assert (node.oracle.elections, node.oracle.refused) == ("peers", {})
    await node.oracle.stop()
    assert caplog.messages == [
        "UDP 10.0.0.1:8712 cannot be used; nodes elect over the connections between them"
    ]


async def test_without_raftos() -> None:
    node = Node(raftos=False)
    await node.oracle.start()
    node.oracle.look(0)
    assert not node.peers.guards
    assert not node.oracle.suggests(0)
    node.oracle.resign(0, 100)
    node.oracle.transfer(2, 0)
    await node.oracle.stop()


async def test_members_change() -> None:
    """raftos is made anew where it cannot follow, and a change while it is made is not lost."""
    node = Node()
    await node.oracle.start()
    node.members = {1: ADDRESSES[1], 2: ADDRESSES[2]}
    node.oracle.look(0)
    node.members = {1: ADDRESSES[1]}
    node.oracle.look(20)
    node.members = {**ADDRESSES}
    for now_ms in range(40, 200, 20):
        await asyncio.sleep(0)
        node.oracle.look(now_ms)
    assert node.raftos.said == ["start", [1, 2], [1], "stop", "start", [1, 2, 3]]
    node.members = {**ADDRESSES, 2: ("name", 8712)}
    node.oracle.look(300)
    for _ in range(5):
        await asyncio.sleep(0)
    assert node.raftos.said[-2:] == ["stop", "start"]
    node.oracle.resign(0, 100)
    assert node.raftos.said[-1] == ("resign", 100)


@pytest.mark.parametrize(
    ("hosts", "fits"),
    [
        (["10.0.0.1", "10.0.0.2"], True),
        (["10.0.0.1", "node-2.local"], False),
        (["10.0.0.1"], False),
    ],
)
def test_raftos_knows_numeric_addresses_only(hosts: list[str], fits: bool) -> None:
    assert may_use_raftos({node: (host, 8712) for node, host in enumerate(hosts)}) is fits


def test_a_tick_by_datagram_is_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """If there is no space for it, that must not end the node."""
    raftos_oracle = pytest.importorskip("delaylog.replication.raftos_oracle")
    made: list[Any] = []
    monkeypatch.setattr(raftos_oracle, "RaftosOracle", lambda *given: made.append(given[-1]))
    members = [SimpleNamespace(node=node, election=at) for node, at in ADDRESSES.items()]
    config = SimpleNamespace(
        node=1, members=members, cluster_id=bytes(16), keys=lambda use: (bytes(range(32)),)
    )
    failed: list[Exception] = []

    def take_input(take: Callable[[], object]) -> None:
        try:
            take()
        except DiskFullError as error:
            failed.append(error)

    def accept_tick(tick: EpochTick) -> None:
        raise DiskFullError("no space left on device")

    member: Any = SimpleNamespace(
        config=config,
        file=SimpleNamespace(listen_election=ADDRESSES[1]),
        machine=REAL,
        members=SimpleNamespace(deciding=(1, 2, 3)),
        replication=SimpleNamespace(accept_tick=accept_tick),
        transport=SimpleNamespace(send=None),
        take_input=take_input,
    )
    oracle = make_oracle(OsFileSystem(), "data", member)
    oracle._make()
    made[0].accept_tick(EpochTick())
    assert len(failed) == 1


# --------------------------------------------------------------------------- the candidacy


class _Replication:
    """Takes note of what it is told; leads while `leader` is there."""

    def __init__(self) -> None:
        self.said: list[object] = []
        self.leader: Any = None

    def lead(self, *, age_ms: int | None, progress: dict[int, Any] | None = None) -> None:
        gate = SimpleNamespace(age_ms=lambda now_ms: age_ms)
        self.leader = SimpleNamespace(gate=gate, progress=progress or {})

    def suggest_leader(self, now: Now) -> None:
        self.said.append("lead")

    def unsuggest_leader(self) -> None:
        self.said.append("let go")

    def readmit(self, peer: int) -> bool:
        self.said.append(peer)
        return True


def _at(boot_ms: int) -> Now:
    return Now(boot_ms, 1_700_000_000_000 + boot_ms)


def test_the_chosen_one_asks_each_time_and_counts_once() -> None:
    counts, replication = MemberCounts(), _Replication()
    candidacy = Candidacy(counts)
    for boot_ms in (0, 20, 40):
        candidacy.look(replication, _at(boot_ms), chosen=True, silence_ms=250)  # type: ignore[arg-type]
    assert replication.said == ["lead"] * 3
    assert counts.chosen == 1


def test_who_is_not_chosen_any_more_lets_go_once() -> None:
    replication, candidacy = _Replication(), Candidacy(MemberCounts())
    for chosen in (False, True, False, False):
        candidacy.look(replication, _at(0), chosen=chosen, silence_ms=250)  # type: ignore[arg-type]
    assert replication.said == ["lead", "let go"]


def test_a_leader_that_is_followed_stays_until_it_is_not() -> None:
    replication, candidacy = _Replication(), Candidacy(MemberCounts())
    candidacy.look(replication, _at(0), chosen=True, silence_ms=250)  # type: ignore[arg-type]
    replication.lead(age_ms=249)
    candidacy.look(replication, _at(20), chosen=False, silence_ms=250)  # type: ignore[arg-type]
    assert replication.said == ["lead", "lead"]
    replication.lead(age_ms=250)
    candidacy.look(replication, _at(40), chosen=False, silence_ms=250)  # type: ignore[arg-type]
    assert replication.said[2:] == ["let go"]


def known(peer: int) -> bool:
    """All voters have met the learner's folder."""
    return True


def test_a_leader_lets_learners_in_now_and_then() -> None:
    replication, candidacy = _Replication(), Candidacy(MemberCounts())
    learner, voter = (SimpleNamespace(counts=is_in, voter=is_in) for is_in in (False, True))
    candidacy.readmit(replication, _at(1_000), known)  # type: ignore[arg-type]
    assert replication.said == [], "it does not lead"
    replication.lead(age_ms=0, progress={2: learner, 3: voter})
    for boot_ms in (1_000, 1_000 + READMIT_EVERY_MS - 1):
        candidacy.readmit(replication, _at(boot_ms), known)  # type: ignore[arg-type]
    assert replication.said == [2]
    candidacy.readmit(replication, _at(1_000 + READMIT_EVERY_MS), known)  # type: ignore[arg-type]
    assert replication.said == [2, 2]
    strange = 1_000 + 2 * READMIT_EVERY_MS
    candidacy.readmit(replication, _at(strange), lambda peer: False)  # type: ignore[arg-type]
    assert replication.said == [2, 2], "another voter has not met its folder"
