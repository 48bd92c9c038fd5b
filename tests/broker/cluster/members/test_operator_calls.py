"""Status, hand-over and metrics of a member, with a replication and connections made up for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from delaylog.broker.cluster.config import ClusterConfig, ClusterSecret, Member
from delaylog.broker.cluster.leading.gate import LeaderSight
from delaylog.broker.cluster.member_counts import MemberCounts
from delaylog.broker.cluster.members import operator_calls
from delaylog.broker.cluster.members.node_status import Status, Statuses, encode_status
from delaylog.broker.cluster.members.operator_calls import NotTakenOverError, OperatorCalls
from delaylog.broker.cluster.peers.handshake import Refused
from delaylog.broker.cluster.watch.fitness_watch import FitnessWatch
from delaylog.broker.cluster.watch.member_watch import MemberWatch
from delaylog.broker.cluster.watch.metrics import ClusterMetrics
from delaylog.broker.engine.errors import BadRequestError, ConflictError, NotLeadingError
from delaylog.broker.engine.limits import Limits
from delaylog.broker.host.machine import REAL
from delaylog.replication.configuration import Configuration
from delaylog.replication.epochs import EpochTable, make_epoch
from delaylog.replication.leader import Acks, Progress
from delaylog.replication.messages import Role

EPOCH = make_epoch(5, 1)


def member(node: int, name: str) -> Member:
    port = 8700 + node
    return Member(node, name, ("10.0.0.1", port), ("10.0.0.1", port), f"http://10.0.0.1:{port}")


class Fake:
    """Node 1 of three; it leads, node 2 is up to date and node 3 a learner that lags."""

    def __init__(self) -> None:
        members = (member(1, "alpha"), member(2, "beta"), member(3, "gamma"))
        self.config = ClusterConfig("demo", b"", 1, members, Acks.QUORUM, None, ClusterSecret(()))
        self.file = self.config
        self.leading = True
        self.leader: int | None = 1
        self.leader_works = True
        self.cut = False
        self.position = 1_000
        self.members = SimpleNamespace(
            removed=False, deciding=(1, 2, 3), describe=self.config.describe
        )
        self.waits_for = "this node waits for all other members before it joins"
        self.quarantined: str | None = None
        meta = SimpleNamespace(meta=SimpleNamespace(cluster=bytes(range(16))))
        table = EpochTable([(make_epoch(3, 9), 0)])
        table.begin(EPOCH, 64, None, 1_700_000_000_000)
        replica = SimpleNamespace(epochs=table)
        self.files = SimpleNamespace(
            log_end=1_000, durable_end=900, last_begin=(EPOCH, 0), meta=meta, replica=replica
        )
        self.connected = {2, 3}
        self.taker: int | None = 2
        self.asked: list[int | None] = []
        self.counts = MemberCounts(chosen=2, leaderships=1, handed_over=3)
        refused = {Refused.KEY: 4}
        self.transport = SimpleNamespace(
            connected=lambda: frozenset(self.connected),
            counts=SimpleNamespace(refused=refused),
            dial_all=lambda *, wanted: None,
        )
        self.machine = REAL
        sight = LeaderSight(1, REAL.boot_ms, leads=lambda: self.leading, chosen=lambda: None)
        self.fitness = FitnessWatch(self, SimpleNamespace(), sight, 0)  # type: ignore[arg-type]
        self.oracle = SimpleNamespace(
            refused={"replayed": 7},
            elections="raftos",
            datagram_ages_ms={2: 250, 3: None},
        )
        self.statuses = Statuses()
        self.copies = SimpleNamespace(
            giving=True,
            giver=SimpleNamespace(peer=3, given=1, failed=2),
            receiver=SimpleNamespace(peer=None, receiving=False, taken=4, failed=0),
        )
        node = SimpleNamespace(
            engine=SimpleNamespace(limits=Limits(), state=SimpleNamespace(level=2))
        )
        self.watch = MemberWatch(self, node)  # type: ignore[arg-type]
        progress = {
            2: Progress(1_000, match=950, known=True),
            3: Progress(0, match=100, known=True, counts=False),
        }
        self.replication: Any = SimpleNamespace(
            promised=EPOCH,
            commit=950,
            votes=True,
            role=Role.SERVING,
            leader=SimpleNamespace(progress=progress, is_cut=lambda now_ms: self.cut),
            leadership=SimpleNamespace(hands_over=False),
            configuration=Configuration((1, 2, 3)),
        )

    def say(self, peer: int, **members: Any) -> None:
        """A status of the peer comes."""
        self.statuses.hear(peer, encode_status(Status(**members)), 0)

    def gate_age_ms(self) -> int | None:
        return 12 if self.leading else None

    async def hand_over(self, target: int | None) -> int | None:
        self.asked.append(target)
        if self.taker is not None:
            self.leading = False
            self.files.last_begin = (make_epoch(6, self.taker), 1_000)
            asyncio.get_running_loop().call_later(0.02, self.serve)
        return self.taker

    def serve(self) -> None:
        """What the next one began is committed."""
        self.replication.commit = 1_064

    def follow(self) -> None:
        self.leading, self.leader = False, 2
        self.replication.leader, self.replication.role = None, Role.FOLLOWER

    def calls(self) -> OperatorCalls:
        return OperatorCalls(self)  # type: ignore[arg-type]

    def scrape(self) -> list[str]:
        registry = CollectorRegistry()
        registry.register(ClusterMetrics(self))  # type: ignore[arg-type]
        return generate_latest(registry).decode().splitlines()


@pytest.fixture
def fake() -> Fake:
    return Fake()


def hand_over(fake: Fake, to: int | str | None = None) -> dict[str, Any]:
    return asyncio.run(fake.calls().hand_over(to))


def test_the_leader_knows_how_far_the_others_are(fake: Fake) -> None:
    status = fake.calls().status()
    assert (status["cluster"], status["role"], status["gate_age_ms"]) == ("demo", "leader", 12)
    assert status["epoch"] == {"counter": 5, "node": 1}
    assert status["leader"] == {"node": 1, "name": "alpha", "http": "http://10.0.0.1:8701"}
    assert (status["log_end"], status["durable"], status["commit"]) == (1_000, 900, 950)
    shown = [
        (each["node"], each["connected"], each["voter"], each["match"], each["lag_bytes"])
        for each in status["members"]
    ]
    assert shown == [
        (1, True, True, 900, 100),
        (2, True, True, 950, 50),
        (3, True, False, 100, 900),
    ]
    fake.replication.leader.progress[2].known = False
    fake.connected = {3}
    second = fake.calls().status()["members"][1]
    assert (second["connected"], second["voter"], second["match"]) == (False, None, None)


def test_the_newest_leaders_come_first(fake: Fake) -> None:
    """One that a checkpoint named has no time, and a node that was removed no name."""
    assert OperatorCalls(fake).status()["leaders"] == [  # type: ignore[arg-type]
        {"counter": 5, "node": 1, "name": "alpha", "began_ms": 1_700_000_000_000},
        {"counter": 3, "node": 9, "name": None, "began_ms": None},
    ]


def test_roles(fake: Fake) -> None:
    fake.follow()
    assert fake.calls().role == "follower"
    assert fake.calls().status()["leader"]["name"] == "beta"
    fake.replication.role = Role.PREPARING
    assert fake.calls().role == "candidate"
    fake.replication.votes = False
    assert fake.calls().role == "learner"
    fake.replication, fake.leader = None, None
    status = fake.calls().status()
    assert (status["role"], status["epoch"], status["leader"]) == ("joining", None, None)
    assert fake.scrape()


def test_it_says_why_it_is_not_ready(fake: Fake) -> None:
    assert fake.calls().not_ready() is None
    fake.leader_works, fake.cut = False, True
    assert fake.calls().not_ready() == (
        "this node leads, but no majority of the voters acknowledges its rounds"
    )
    assert "delaylog_cluster_majority 0.0" in fake.scrape()
    fake.cut = False
    assert "has committed nothing for" in (fake.calls().not_ready() or "")
    fake.cut = True
    assert fake.calls().status()["majority"] is False
    fake.follow()
    assert fake.calls().not_ready() == (
        "this node hears no leader: beta is elected, and sends nothing"
    )
    assert "delaylog_cluster_leader_known 0.0" in fake.scrape()
    fake.leader_works = True
    assert fake.calls().not_ready() is None
    assert {"delaylog_cluster_leader_known 1.0", "delaylog_cluster_majority 1.0"} <= {
        *fake.scrape()
    }
    fake.leader, fake.connected = None, {2}
    assert fake.calls().not_ready() == (
        "this node knows no leader; voters that are not connected: gamma"
    )
    assert "delaylog_cluster_missing_voters 1.0" in fake.scrape()
    fake.leader, fake.replication.votes, fake.files.log_end = 2, False, 0
    assert "has no data" in (fake.calls().not_ready() or "")
    fake.replication = None
    assert "before it joins" in (fake.calls().not_ready() or "")


def test_a_member_that_was_not_heard_of_lacks_everything(fake: Fake) -> None:
    fake.replication.leader.progress[3] = Progress(0)
    assert 'delaylog_cluster_follower_lag_bytes{node="3"} 1000.0' in fake.scrape()


def hear(fake: Fake, node: int, ahead_us: int = 0, **members: Any) -> None:
    """A status of a peer that answers one of this node at once."""
    times = {"echo_wall_us": 5, "echo_heard_us": 5 + ahead_us, "wall_us": 5 + ahead_us}
    status = Status(**times, **members)
    fake.watch.hear(node, fake.statuses.hear(node, encode_status(status), 5), 5)


def test_what_it_watches_is_in_the_status(fake: Fake) -> None:
    hear(fake, 2, release="0.9")
    hear(fake, 3, 5_000_000, http="http://10.0.0.9:1", peer="10.0.0.1:8703")
    fake.watch.look(0)
    status = fake.calls().status()
    assert (status["majority"], status["missing_voters"]) == (True, [])
    assert (status["copy_to"], status["copy_from"]) == (3, None)
    assert (status["clock_offset_ms"], status["clock_stands_aside"]) == (0, False)
    assert (status["feature_level"], status["peer_tls"]) == (2, False)
    assert status["connections_refused"] == {"wrong_key": 4}
    me, beta, gamma = status["members"]
    assert (me["clock_ahead_ms"], me["clock_off"], me["announced_http"]) == (0, False, None)
    assert (beta["clock_ahead_ms"], beta["clock_off"], beta["release"]) == (0, False, "0.9")
    assert (gamma["clock_ahead_ms"], gamma["clock_off"]) == (5_000, True)
    assert (gamma["announced_http"], gamma["announced_peer"]) == (
        "http://10.0.0.9:1",
        "10.0.0.1:8703",
    )
    fake.connected = set()
    status = fake.calls().status()
    assert (status["majority"], status["missing_voters"]) == (False, ["beta", "gamma"])


def test_another_address_is_logged_once(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    for http in ("http://a:1", "http://a:1", "", "http://a:1"):
        hear(fake, 2, http=http)
    first, second = caplog.messages
    assert first == second
    assert first == (
        "node 2 (beta) has http://a:1 as its `http` in its cluster file, but the cluster uses "
        "http://10.0.0.1:8702: correct that file, or run `delaylog cluster move`"
    )


def test_metrics_of_what_it_watches(fake: Fake) -> None:
    hear(fake, 2, -1_000_000)
    lines = fake.scrape()
    assert not [line for line in lines if line.startswith("delaylog_cluster_own_clock_offset")]
    hear(fake, 3, -1_000_000)
    lines = fake.scrape()
    for line in (
        'delaylog_cluster_clock_offset_seconds{peer="2"} -1.0',
        'delaylog_cluster_clock_offset_seconds{peer="3"} -1.0',
        "delaylog_cluster_own_clock_offset_seconds 1.0",
        'delaylog_cluster_copies_under_way{direction="give"} 1.0',
        'delaylog_cluster_copies_under_way{direction="take"} 0.0',
        'delaylog_cluster_copies_total{direction="give",result="done"} 1.0',
        'delaylog_cluster_copies_total{direction="give",result="failed"} 2.0',
        'delaylog_cluster_copies_total{direction="take",result="done"} 4.0',
        'delaylog_cluster_copies_total{direction="take",result="failed"} 0.0',
        'delaylog_cluster_peers_refused_total{reason="replaced"} 0.0',
    ):
        assert line in lines, lines


@pytest.mark.parametrize("to", [2, "2", "beta", None])
def test_handing_over(fake: Fake, to: int | str | None) -> None:
    """Answered once the next one serves, with the time from the stop of the intake to that."""
    answer = hand_over(fake, to)
    assert fake.asked == [None if to is None else 2]
    assert answer.pop("pause_ms") >= 15
    assert answer == {
        "node": 2,
        "name": "beta",
        "http": "http://10.0.0.1:8702",
        "epoch": {"counter": 6, "node": 2},
    }


def test_what_cannot_come_to_anything_is_refused_before_it_pauses(fake: Fake) -> None:
    for to in ("delta", 4, "", "02", -1):
        with pytest.raises(BadRequestError, match="there is no member") as wrong:
            hand_over(fake, to)
        assert wrong.value.field == "to"
    with pytest.raises(ConflictError, match="leads already"):
        hand_over(fake, 1)
    with pytest.raises(ConflictError, match="learner"):
        hand_over(fake, 3)
    fake.connected = {3}
    with pytest.raises(ConflictError, match="not connected"):
        hand_over(fake, 2)
    fake.replication.leadership.hands_over = True
    with pytest.raises(ConflictError, match="under way"):
        hand_over(fake, 2)
    fake.follow()
    with pytest.raises(ConflictError, match="does not lead") as away:
        hand_over(fake)
    assert away.value.facts == {"leader": "http://10.0.0.1:8702"}
    assert fake.asked == []


def test_a_promotion_that_cannot_succeed_names_its_nodes(fake: Fake) -> None:
    """So that nobody waits: also for nodes that have not caught up. That passes by itself."""
    voters = (member(node, f"n{node}") for node in range(1, 9))
    fake.config = replace(fake.config, members=tuple(voters))
    fake.members.follow = lambda replication: None
    fake.replication.leader.may_vote = lambda node: False
    fake.replication.configuration = Configuration(tuple(range(1, 8)), learners=(8,), version=3)
    for node, text in (("8", "a cluster has 7 voters at most"), ("n7", "n7 is a voter already")):
        with pytest.raises(ConflictError, match=text) as refused:
            asyncio.run(fake.calls().change_members("promote", [node], {}))
        assert refused.value.field == "nodes"
    fake.replication.configuration = Configuration(tuple(range(1, 7)), learners=(8,), version=3)
    with pytest.raises(ConflictError, match="has not caught up") as early:
        asyncio.run(fake.calls().change_members("promote", ["8"], {}))
    assert early.value.field is None


def test_a_target_that_is_not_fit_is_refused(fake: Fake) -> None:
    """By name, with the figure; and so is a hand-over to whoever is fittest if nobody is."""
    fake.say(2, full=True, free_bytes=4_096)
    with pytest.raises(ConflictError, match="beta has a full disk: 4,096 bytes"):
        hand_over(fake, 2)
    with pytest.raises(ConflictError, match=r"no node can take over: beta has .*; gamma is a lear"):
        hand_over(fake)
    fake.say(2, unfit="slow", sync_ms=700)
    with pytest.raises(ConflictError, match="beta has a slow disk: a sync takes 700 ms"):
        hand_over(fake, 2)
    fake.say(2)
    fake.files.log_end = 20_000_000
    with pytest.raises(ConflictError, match="beta lacks 19,999,050 bytes"):
        hand_over(fake, 2)
    assert fake.asked == []


def test_what_is_known_of_the_fitness_of_each(fake: Fake) -> None:
    fake.say(2, unfit="slow", sync_ms=700, priority=80, zone="b")
    shown = [
        (each["fit"], each["unfit"], each["sync_ms"], each["priority"], each["zone"])
        for each in fake.calls().status()["members"]
    ]
    assert shown == [
        (True, None, None, 50, ""),
        (False, "slow", 700, 80, "b"),
        (None, None, None, 50, ""),
    ]


def test_nobody_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """In time, or this node itself comes to lead again."""
    monkeypatch.setattr(operator_calls, "SUCCESSOR_SECONDS", 0.05)
    fake = Fake()
    fake.taker = None
    with pytest.raises(NotTakenOverError):
        hand_over(fake)
    fake.taker = 1
    with pytest.raises(NotTakenOverError):
        hand_over(fake)
    fake = Fake()
    fake.serve = lambda: None  # type: ignore[method-assign]
    with pytest.raises(NotTakenOverError):
        hand_over(fake)


def test_a_leadership_that_ends_just_then(fake: Fake) -> None:

    async def gone(_target: int | None) -> int | None:
        raise NotLeadingError("over")

    fake.hand_over = gone  # type: ignore[method-assign]
    with pytest.raises(ConflictError, match="over"):
        hand_over(fake)


def test_datagrams_that_do_not_arrive(fake: Fake) -> None:
    """A peer of an older release sends none while it follows, so only raftos here is awaited."""
    fake.follow()
    fake.leader = None
    fake.say(2, elections="peers")
    fake.say(3, elections="raftos")
    for now_ms in (0, 4_900):
        fake.watch.look(now_ms)
        assert fake.calls().not_ready() == "this node knows no leader"
    fake.watch.look(5_000)
    assert fake.calls().not_ready() == (
        "this node knows no leader; no election datagrams come to UDP 10.0.0.1:8701 from gamma"
    )
    rows = {each["node"]: each["datagrams_arrive"] for each in fake.calls().status()["members"]}
    assert rows == {1: None, 2: None, 3: False}


def test_metrics(fake: Fake) -> None:
    for peer in (2, 3):
        fake.say(peer, elections="raftos")
    lines = fake.scrape()
    for line in (
        'delaylog_cluster_role{role="leader"} 1.0',
        'delaylog_cluster_role{role="follower"} 0.0',
        "delaylog_cluster_epoch 5.0",
        "delaylog_cluster_commit_position 950.0",
        "delaylog_cluster_connected_peers 2.0",
        "delaylog_cluster_missing_voters 0.0",
        "delaylog_cluster_leader_known 1.0",
        "delaylog_cluster_gate_age_seconds 0.012",
        'delaylog_cluster_follower_lag_bytes{node="2"} 50.0',
        'delaylog_cluster_follower_lag_bytes{node="3"} 900.0',
        "delaylog_cluster_elections_won_total 2.0",
        "delaylog_cluster_leaderships_total 1.0",
        "delaylog_cluster_handovers_total 3.0",
        "delaylog_cluster_handovers_failed_total 0.0",
        'delaylog_cluster_peers_refused_total{reason="wrong_key"} 4.0',
        'delaylog_cluster_election_datagrams_refused_total{reason="replayed"} 7.0',
        'delaylog_cluster_election_datagram_age_seconds{node="2"} 0.25',
        'delaylog_cluster_unfit{reason="full"} 0.0',
        "delaylog_cluster_sync_seconds 0.0",
        'delaylog_cluster_automatic_handovers_total{reason="slow",result="let_go"} 0.0',
    ):
        assert line in lines
    fake.follow()
    lines = fake.scrape()
    assert 'delaylog_cluster_role{role="follower"} 1.0' in lines
    assert not [line for line in lines if line.startswith("delaylog_cluster_gate_age_seconds ")]
    assert not [line for line in lines if line.startswith("delaylog_cluster_follower_lag_bytes{")]


@pytest.mark.parametrize(
    ("before", "contact", "after"),
    [
        (8702, {"peer": "10.0.0.2:9702"}, 9702),
        (8702, {"peer": "10.0.0.2:9702", "election_port": 8800}, 8800),
        (8800, {"peer": "10.0.0.2:9702"}, 8800),
        (8702, {"http": "10.0.0.2:8711"}, 8702),
    ],
)
def test_the_port_of_elections_moves_with_the_peer_address(
    fake: Fake, before: int, contact: dict[str, Any], after: int
) -> None:
    """Unless the node has another one: a cluster file that names none means the port of `peer`."""
    members = tuple(
        replace(
            each,
            http_url=f"http://10.0.0.1:{8600 + each.node}",
            election=("10.0.0.1", before if each.node == 2 else each.election[1]),
        )
        for each in fake.config.members
    )
    fake.config = replace(fake.config, members=members)
    contacts = {each.node: each.contact for each in members}
    fake.replication.configuration = Configuration((1, 2, 3), version=1, contacts=contacts)
    fake.members.follow = lambda replication: None

    def change(configuration: Configuration) -> None:
        fake.replication.configuration = configuration

    fake.replication.leadership.change = change
    asyncio.run(fake.calls().change_members("move", ["beta"], contact))
    moved = fake.replication.configuration.contacts[2]
    assert (moved["election_port"], moved["name"]) == (str(after), "beta")
