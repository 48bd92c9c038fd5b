"""What a member does about its fitness, with a node and a hand-over made up for it."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.cluster.config import ClusterConfig, ClusterSecret, Member
from delaylog.broker.cluster.members.node_status import Status, Statuses, encode_status
from delaylog.broker.cluster.watch.fitness import (
    CUT_OFF_MS,
    CUT_ON_MS,
    FULL_ON_MS,
    HANGS_ON_MS,
    PRIORITY_AFTER_MS,
    Reason,
    Unfit,
)
from delaylog.broker.cluster.watch.fitness_watch import (
    LEADER_MS,
    LOOK_EVERY_MS,
    OUT_MS,
    PRIORITY_MS,
    UNFIT_MS,
    FitnessWatch,
)
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host.log_commits import STALLED_SECONDS, SyncTimes
from delaylog.broker.host.machine import REAL
from delaylog.replication.configuration import Configuration
from delaylog.replication.leader import Acks, Progress
from delaylog.replication.replica import Timing


def member(node: int, priority: int = 50) -> Member:
    address = ("10.0.0.1", 8700 + node)
    return Member(node, f"n{node}", address, address, "http://h:1", priority=priority, zone="a")


class Fake:
    """Node 1 of three, which leads; member and node in one."""

    def __init__(self, *, priority: int = 50) -> None:
        members = (member(1, priority), member(2), member(3))
        self.config = ClusterConfig("demo", b"", 1, members, Acks.QUORUM, None, ClusterSecret(()))
        self.leading = True
        self.watch = SimpleNamespace(clocks=SimpleNamespace(is_off=False), majority=True)
        self.cut = False
        self.taken = True
        self.appends = True
        self.asked: list[int] = []
        self.let_go_ms: list[int] = []
        self.connected = frozenset({2, 3})
        self.transport = SimpleNamespace(connected=lambda: self.connected)
        self.statuses = Statuses()
        self.files = SimpleNamespace(log_end=1_000, durable_end=1_000)
        progress = {node: Progress(1_000, match=1_000, known=True) for node in (2, 3)}
        self.replication: Any = SimpleNamespace(
            leader=SimpleNamespace(progress=progress, commit=1_000, is_cut=lambda now_ms: self.cut),
            timing=Timing(),
            leadership=SimpleNamespace(hands_over=False),
            configuration=Configuration((1, 2, 3)),
        )
        self.position = self.committed_end = 1_000
        self.oracle = SimpleNamespace(refused={"disk_full": 0})
        self.folders = SimpleNamespace(unsaved=0)
        # The node.
        self.node = self
        self.suspended = self.refusing_sends = self.disk_full = False
        self.log_commits = SimpleNamespace(sync_times=SyncTimes(), disk_full=False)
        self.machine = REAL
        self.spawned: list[str] = []
        self.engine = SimpleNamespace(reserve=SimpleNamespace(size_bytes=64))
        self.followed: tuple[int | None, int] = (None, -250)
        self.fitness = FitnessWatch(self, self, self, 0)  # type: ignore[arg-type]
        self.now_ms = 0

    def committed(self) -> int:
        return self.committed_end

    def free_bytes(self) -> int:
        return 0 if self.refusing_sends else 1 << 30

    def may_append(self) -> bool:
        return self.appends

    def spawn(self, name: str, _make: object) -> bool:
        self.spawned.append(name)
        return True

    async def hand_over(self, target: int) -> int | None:
        self.asked.append(target)
        if not self.leading:
            raise NotLeadingError("over")
        if self.taken:
            self.leading = False
        return target if self.taken else None

    def let_go(self, out_ms: int) -> None:
        self.let_go_ms.append(out_ms)
        self.leading, self.replication.leader = False, None

    def say(self, peer: int, **members: Any) -> None:
        self.statuses.hear(peer, encode_status(Status(**members)), 0)

    async def pass_time(self, span_ms: int) -> None:
        """The others go on telling how they are."""
        until_ms = self.now_ms + span_ms
        while self.now_ms < until_ms:
            self.now_ms += LOOK_EVERY_MS
            for peer in (2, 3):
                self.fitness.heard(peer, self.now_ms)
            self.fitness.look(self.now_ms)
            await asyncio.sleep(0)
            await asyncio.sleep(0)


@pytest.fixture
def fake() -> Fake:
    return Fake()


async def test_a_full_leader_hands_over(fake: Fake) -> None:
    fake.say(2, zone="a")
    fake.say(3, zone="b")
    await fake.pass_time(60_000)
    assert fake.asked == []
    fake.refusing_sends = True
    await fake.pass_time(2 * FULL_ON_MS)
    assert (fake.asked, fake.fitness.unfit) == ([3], Unfit.FULL)
    assert fake.fitness.moves == {(Reason.FULL, "handed_over"): 1}
    assert fake.fitness.said()["unfit"] == "full"


@pytest.mark.parametrize("writes", [True, False])
async def test_a_hand_over_that_cannot_end_lets_the_leadership_go(fake: Fake, writes: bool) -> None:
    """It is not even tried while the log waits for space."""
    fake.say(2)
    fake.say(3)
    fake.taken, fake.refusing_sends, fake.disk_full = False, True, not writes
    fake.files.durable_end = 1_000 if writes else 900
    await fake.pass_time(2 * FULL_ON_MS)
    assert (fake.asked, fake.let_go_ms) == ([2] if writes else [], [OUT_MS])
    assert fake.fitness.moves == {(Reason.FULL, "let_go"): 1}


async def test_a_leader_whose_disk_hangs_lets_the_leadership_go(fake: Fake) -> None:
    """It tries no hand-over, which needs the sync that hangs."""
    fake.say(2, sync_ms=3)
    fake.say(3, sync_ms=3)
    fake.files.durable_end = 900
    fake.log_commits.sync_times.began_s = REAL.steady_s() - 2 * STALLED_SECONDS
    await fake.pass_time(HANGS_ON_MS)
    assert not fake.let_go_ms, "it could be this process that was stopped"
    await fake.pass_time(2 * LOOK_EVERY_MS)
    assert (fake.asked, fake.let_go_ms) == ([], [OUT_MS])
    assert fake.fitness.moves == {(Reason.SLOW, "let_go"): 1}


async def test_it_knows_for_how_long_nothing_is_committed(fake: Fake) -> None:
    """Frames that are committed, and those of a node that does not lead, wait for nothing."""
    await fake.pass_time(5_000)
    assert fake.fitness.stalled_ms(fake.now_ms) == 0
    fake.files.log_end = 2_000
    await fake.pass_time(1_500)
    assert fake.fitness.stalled_ms(fake.now_ms) == 1_500
    fake.committed_end = 1_100
    await fake.pass_time(LOOK_EVERY_MS)
    assert fake.fitness.stalled_ms(fake.now_ms) == 0
    await fake.pass_time(700)
    assert fake.fitness.stalled_ms(fake.now_ms) == 700
    fake.leading = False
    await fake.pass_time(LOOK_EVERY_MS)
    assert fake.fitness.stalled_ms(fake.now_ms) == 0


@pytest.mark.parametrize(
    ("connected", "unfit"), [({2, 3}, ""), ({2}, ""), ({2, 3}, "cut"), (set(), "")]
)
async def test_a_leader_that_is_cut_off_lets_the_leadership_go(
    fake: Fake, connected: set[int], unfit: str
) -> None:
    """At once, since a hand-over needs the majority that it lacks, whatever the others lack of its
    log; it is unfit until log has arrived for a while.
    """
    fake.files.log_end = 1 << 30
    fake.connected = frozenset(connected)
    for peer in connected:
        fake.say(peer, unfit=unfit)
    fake.cut = True
    await fake.pass_time(CUT_ON_MS - LOOK_EVERY_MS)
    assert fake.let_go_ms == []
    await fake.pass_time(3 * LOOK_EVERY_MS)
    assert (fake.asked, fake.let_go_ms) == ([], [OUT_MS])
    assert fake.fitness.moves == {(Reason.CUT, "let_go"): 1}
    await fake.pass_time(2 * CUT_OFF_MS)
    assert fake.fitness.unfit is Unfit.CUT
    for _ in range(0, CUT_OFF_MS + 300, LOOK_EVERY_MS):
        fake.followed = (2, fake.now_ms)
        await fake.pass_time(LOOK_EVERY_MS)
    assert fake.fitness.unfit is None


async def test_a_leader_that_is_cut_off_from_nodes_that_cannot_lead_leads_on(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    fake.say(2, unfit="slow", sync_ms=900)
    fake.say(3, full=True)
    fake.cut = True
    await fake.pass_time(30_000)
    assert (fake.asked, fake.let_go_ms) == ([], [])
    assert "n2 has a slow disk" in caplog.text


async def test_a_leader_that_was_cut_off_and_works_again_leads_on(fake: Fake) -> None:
    """Such as one that was elected again: unfit nodes can be elected if no other can."""
    fake.say(2)
    fake.say(3)
    fake.connected = frozenset()
    leader, fake.cut = fake.replication.leader, True
    await fake.pass_time(2 * CUT_ON_MS)
    assert fake.fitness.unfit is Unfit.CUT
    fake.let_go_ms.clear()
    fake.leading, fake.replication.leader, fake.cut = True, leader, False
    fake.connected = frozenset({2, 3})
    await fake.pass_time(CUT_OFF_MS - LOOK_EVERY_MS)
    assert (fake.asked, fake.let_go_ms, fake.fitness.unfit) == ([], [], Unfit.CUT)
    await fake.pass_time(3 * LOOK_EVERY_MS)
    assert fake.fitness.unfit is None


async def test_a_hand_over_that_somebody_else_began_is_left_alone(fake: Fake) -> None:
    fake.say(2)
    fake.refusing_sends = True
    fake.replication.leadership.hands_over = True
    await fake.pass_time(2 * FULL_ON_MS)
    fake.replication.leadership.hands_over, fake.appends = False, False
    await fake.pass_time(2 * FULL_ON_MS)
    assert (fake.asked, fake.let_go_ms) == ([], [])


async def test_nobody_can_take_over(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    """It leads on and says so once, with the reasons."""
    fake.say(2, full=True)
    fake.say(3, unfit="slow", sync_ms=300)
    fake.refusing_sends = True
    with caplog.at_level(logging.ERROR, logger="delaylog.cluster"):
        await fake.pass_time(30_000)
    assert (fake.asked, fake.let_go_ms) == ([], [])
    (line,) = [each.getMessage() for each in caplog.records if "leads on" in each.getMessage()]
    assert "n2 has a full disk" in line
    assert "n3 has a slow disk: a sync takes 300 ms" in line


async def test_a_higher_priority_gets_the_leadership_and_nothing_is_forced_for_it(
    fake: Fake,
) -> None:
    fake.say(2)
    fake.say(3, priority=51)
    fake.taken = False
    await fake.pass_time(PRIORITY_AFTER_MS - LOOK_EVERY_MS)
    assert fake.asked == []
    await fake.pass_time(3 * LOOK_EVERY_MS)
    assert (fake.asked, fake.let_go_ms, fake.leading) == ([3], [], True)
    assert fake.fitness.moves == {(Reason.PRIORITY, "failed"): 1}


async def test_a_silent_one_is_no_target(fake: Fake) -> None:
    await fake.pass_time(1_000)
    fake.now_ms += 2_000
    fake.fitness.look(fake.now_ms)
    assert fake.fitness.refusal(2) == "n2 is stopped: its last status came 2.0 s ago"
    assert fake.fitness.target() is None


async def test_it_stands_back_behind_a_higher_priority() -> None:
    fake = Fake(priority=40)
    fake.leading, fake.replication.leader = False, None
    fake.say(2)
    fake.say(3)
    assert fake.fitness.stands_back(0), "no leader was ever heard, so none asks for it"
    fake.followed = (3, 1_000)
    assert not fake.fitness.stands_back(1_000 + LEADER_MS - 1)
    fake.connected = frozenset({2})
    assert fake.fitness.stands_back(1_000 + 1), "its process has ended, so it asks nobody"
    fake.connected = frozenset({2, 3})
    assert fake.fitness.stands_back(1_000 + LEADER_MS)
    assert not fake.fitness.stands_back(1_000 + PRIORITY_MS)
    fake.say(3, priority=30)
    fake.followed = (2, 1_000)
    assert not fake.fitness.stands_back(1_000 + LEADER_MS), "not for the leader that is gone"
    fake.refusing_sends = True
    await fake.pass_time(2 * FULL_ON_MS)
    assert fake.fitness.stands_back(1_000 + UNFIT_MS - 1)


async def test_a_log_without_space_gets_a_step_of_the_reserve(fake: Fake) -> None:
    fake.log_commits.disk_full = True
    await fake.pass_time(1_000)
    assert set(fake.spawned) == {"room"}
    assert len(fake.spawned) == 5
    fake.engine.reserve.size_bytes = 0
    await fake.pass_time(1_000)
    assert len(fake.spawned) == 5
    fake.engine.reserve.size_bytes, fake.log_commits.disk_full = 64, False
    fake.oracle.refused["disk_full"] = 1
    await fake.pass_time(1_000)
    assert len(fake.spawned) == 6, "once for each vote that was lost"
    fake.folders.unsaved = 1
    await fake.pass_time(1_000)
    assert len(fake.spawned) == 7, "and for each peer that could not be remembered"
