"""Elections by the peer oracle: one leader soon after each fault, and no change without one.

Method: whole clusters in virtual time from a seed (`elected_world.py`), judged by the invariants of
replication at every step.
"""

from __future__ import annotations

from random import Random

import pytest

from delaylog.replication.configuration import Configuration
from delaylog.replication.messages import Canvass, Message, Role, Support
from delaylog.replication.oracle import (
    DELAY_MS_MAX,
    FACTOR_MAX,
    FADE_MS,
    Delays,
    LogState,
    PeerOracle,
    PeerTiming,
    View,
)
from tests.effort import tries
from tests.replication.elected_world import ElectedWorld
from tests.replication.sim_node import SimNode

TIMING = PeerTiming()


def started(seed: int, size: int = 3) -> tuple[ElectedWorld, SimNode]:
    world = ElectedWorld(seed, size)
    world.until_followed(within_ms=1_500)
    world.load(300)
    leader = world.followed()
    assert leader is not None
    return world, leader


# --------------------------------------------------------------------------- whole clusters


@pytest.mark.long
@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_a_cold_start(size: int) -> None:
    for seed in range(tries(20)):
        world = ElectedWorld(seed, size)
        assert world.until_followed() < 1_000 if size > 1 else 200
        world.load(3_000)
        assert len(world.served) == 1


def test_a_process_that_ends_is_replaced_at_once() -> None:
    """Its peers see its connections close: nobody waits for silence."""
    spans = []
    for seed in range(tries(100)):
        world, old = started(seed, size=3 if seed % 2 else 5)
        world.kill(old)
        spans.append(world.until_followed(old))
        world.load(200)
        assert len(world.served) == 2
    # Two canvasses, a promise and the first frame, each with a sync.
    assert max(spans) < 250


@pytest.mark.long
def test_a_leader_that_hangs_is_replaced_after_a_silence() -> None:
    for seed in range(tries(60)):
        world, old = started(seed)
        world.stops.add(old.number)
        assert 250 <= world.until_followed(old) < 850
        world.load(1_000)
        world.stops.clear()
        world.load(1_000)
        assert old.replication.role is Role.FOLLOWER
        assert len(world.served) == 2, "the old leader does not fight for it"


def test_a_closed_connection_elects_nobody_while_others_hear_the_leader() -> None:
    for seed in range(tries(30)):
        world, leader = started(seed, size=3 if seed % 2 else 5)
        one = next(n for n in world.nodes if n is not leader)
        world.cuts |= {(leader.number, one.number), (one.number, leader.number)}
        world.electors[one.number].oracle.ended(leader.number, world.now_ms)
        world.load(3_000)
        assert world.served == world.served[:1]
        assert world.followed() is leader


def test_a_leader_that_hears_nobody_is_replaced_once_it_is_silent() -> None:
    """Its rounds arrive, so nobody stands against it; it steps down by itself."""
    for seed in range(tries(30)):
        world, leader = started(seed)
        world.cuts |= {(n.number, leader.number) for n in world.nodes if n is not leader}
        world.until_followed(leader, within_ms=3_000)
        assert leader.replication.role is not Role.SERVING


def test_a_leader_that_is_not_heard_is_replaced() -> None:
    for seed in range(tries(30)):
        world, leader = started(seed)
        world.cuts |= {(leader.number, n.number) for n in world.nodes if n is not leader}
        assert world.until_followed(leader) < 1_500


@pytest.mark.long
def test_a_node_that_returns_from_a_partition_deposes_nobody() -> None:
    for seed in range(tries(30)):
        world, leader = started(seed)
        one = next(n for n in world.nodes if n is not leader)
        world.cuts = {
            (a.number, b.number) for a in world.nodes for b in world.nodes if one in (a, b)
        }
        world.load(2_000)
        world.cuts.clear()
        world.load(2_000)
        assert len(world.served) == 1


def test_a_planned_handover_keeps_its_target() -> None:
    for seed in range(tries(30)):
        world, old = started(seed)
        target = (old.number + 1) % 3
        assert old.replication.hand_over(target, old.now)
        old.settle()
        assert world.until_followed(old) < 200
        world.load(2_000)
        assert [node for _, node in world.served] == [old.number, target]
        assert world.judge.stats["repeats"] == 0


def test_a_node_that_may_not_lead_is_not_chosen() -> None:
    for seed in range(tries(30)):
        world, old = started(seed)
        unfit, other = (n for n in world.nodes if n is not old)
        world.unfit = {unfit.number}
        world.kill(old)
        world.until_followed(old)
        assert world.followed() is other


@pytest.mark.long
@pytest.mark.parametrize("size", [3, 5])
def test_any_faults_end_in_one_leader(size: int) -> None:
    """Loss, cuts of either direction, stops and kills; then a majority is connected again."""
    for seed in range(tries(40)):
        world = ElectedWorld(seed, size)
        random = Random(seed)
        for _ in range(random.randint(3, 12)):
            _trouble(world, random)
            world.load(random.choice((30, 200, 700)))
        world.losses = 0.0
        world.cuts.clear()
        world.stops.clear()
        dead = [node for node in world.nodes if not node.alive]
        # A minority stays dead, or everybody comes back.
        for node in dead[: len(dead) if random.random() < 0.5 else max(len(dead) - size // 2, 0)]:
            world.revive(node)
        # A second for who has just resigned, and two of the longest silences.
        world.until_followed(within_ms=6_000)
        world.load(500)
        settled = len(world.served)
        world.load(3_000)
        assert len(world.served) == settled, f"no change without a fault, seed {seed}"
        assert world.judge.stats["commits"] > 0


def _trouble(world: ElectedWorld, random: Random) -> None:
    node = random.choice(world.nodes)
    pairs = [(a.number, b.number) for a in world.nodes for b in world.nodes if a is not b]
    match random.choice(("kill", "revive", "stop", "go", "cut", "isolate", "heal", "loss")):
        case "kill" if node.alive and sum(n.alive for n in world.nodes) > 1:
            world.kill(node)
        case "revive" if not node.alive:
            world.revive(node)
        case "stop":
            world.stops.add(node.number)
        case "go":
            world.stops.discard(node.number)
        case "cut":
            world.cuts.add(random.choice(pairs))
        case "isolate":
            world.cuts |= {pair for pair in pairs if node.number in pair}
        case "heal":
            world.cuts.clear()
        case "loss":
            world.losses = random.choice((0.0, 0.1, 0.4))


@pytest.mark.parametrize("guards", [False, True])
def test_a_leader_that_hangs_on_a_busy_machine_is_replaced_within_3_s(guards: bool) -> None:
    spans = []
    for seed in range(tries(30)):
        world, _ = started(seed)
        for each in world.electors:
            each.oracle.guards = guards
        world.slow_ms = 400
        world.load(2_000)
        world.until_followed(within_ms=5_000)
        old = world.followed()
        assert old is not None
        world.stops.add(old.number)
        spans.append(world.until_followed(old, within_ms=10_000))
    assert max(spans) <= 3_000


@pytest.mark.long
def test_a_busy_machine_changes_leaders_rarely() -> None:
    """All nodes rest up to 300 ms at a time: silences of 250 ms are common, and mean nothing."""
    changes = []
    for seed in range(tries(20)):
        world, _ = started(seed)
        world.slow_ms = 300
        world.load(5_000)
        before = len(world.served)
        world.load(30_000)
        changes.append(len(world.served) - before)
    assert sum(changes) <= len(changes) / 2, "one change a minute"


# --------------------------------------------------------------------------- one node


class OneNode:
    """An oracle of node 0 among three, and what it sends."""

    def __init__(self, *, role: Role = Role.FOLLOWER, seed: int = 1) -> None:
        self.sent: list[tuple[int, Message]] = []
        self.configuration = Configuration((0, 1, 2))
        self.log: LogState | None = LogState(5, 100)
        self.role, self.votes = role, True
        self.age_ms: int | None = None
        self.peers = [1, 2]
        self.oracle = PeerOracle(
            0,
            view=self.view,
            send=lambda peer, message: self.sent.append((peer, message)),
            random=Random(seed),
        )

    def view(self) -> View:
        return View(self.configuration, self.votes, self.log, self.role, self.age_ms, self.peers)

    def run(self, start_ms: int, end_ms: int) -> list[tuple[int, Message]]:
        """What it sends in this time."""
        self.sent.clear()
        for now_ms in range(start_ms, end_ms, 20):
            self.oracle.look(now_ms)
        return self.sent

    def asked(self, canvass: Canvass, now_ms: int, source: int = 1) -> bool:
        """Whether it supports a candidate."""
        self.sent.clear()
        self.oracle.receive(source, canvass, now_ms)
        [(target, answer)] = self.sent
        assert target == source
        assert isinstance(answer, Support)
        assert answer.round == canvass.round
        return answer.granted


EQUAL = Canvass(7, 5, 100)


def test_it_asks_only_nodes_that_know_the_messages() -> None:
    node = OneNode()
    node.peers = [2]
    assert {peer for peer, _ in node.run(0, 2_000)} == {2}


def test_it_asks_rarer_and_rarer_while_nobody_answers() -> None:
    node = OneNode()
    node.peers = [2]
    assert 5 < len(node.run(0, 2_000)) < 15
    assert len(node.run(10_000, 20_000)) < 45


@pytest.mark.parametrize("guards", [False, True])
@pytest.mark.parametrize("late_ms", [60, 100, 400, DELAY_MS_MAX])
def test_a_node_that_is_always_late_canvasses_too(late_ms: int, guards: bool) -> None:
    """A busy machine delays every look. That stretches the silence, but only so far."""
    for seed in range(20):
        node = OneNode(seed=seed)
        node.oracle.guards = guards
        for now_ms in range(0, 1_000, late_ms):
            node.oracle.look(now_ms)
        node.oracle.hear(2, now_ms)
        node.sent.clear()
        heard_ms = now_ms
        while not node.sent:
            now_ms += late_ms
            node.oracle.look(now_ms)
            assert now_ms < heard_ms + TIMING.stretched_max_ms + late_ms
        assert now_ms - heard_ms >= TIMING.silence_ms


def test_another_oracle_goes_first() -> None:
    node = OneNode()
    node.oracle.guards = True
    assert not node.run(0, TIMING.guard_min_ms)
    assert node.run(TIMING.guard_min_ms, TIMING.guard_max_ms + 20)


@pytest.mark.parametrize(
    ("canvass", "granted"),
    [
        (EQUAL, True),
        (Canvass(1, 6, 1), True),
        (Canvass(1, 5, 99), False),
        (Canvass(1, 4, 900), False),
    ],
)
def test_it_supports_a_log_that_is_as_complete(canvass: Canvass, granted: bool) -> None:
    assert OneNode().asked(canvass, 1_000) is granted


def test_a_node_that_cannot_lead_has_no_preference() -> None:
    node = OneNode()
    node.log = None
    assert node.asked(Canvass(1, 1, 1), 1_000)
    out = OneNode()
    out.oracle.resign(0, 5_000)
    assert out.asked(Canvass(1, 1, 1), 1_000)


def test_it_supports_nobody_while_it_hears_a_leader() -> None:
    node = OneNode()
    node.oracle.hear(2, 1_000)
    assert not node.asked(EQUAL, 1_040)
    # The leader itself asks: then it does not lead any more.
    assert node.asked(EQUAL, 1_041, source=2)
    node.oracle.hear(2, 1_060)
    node.oracle.ended(2, 1_070)
    assert node.asked(EQUAL, 1_200, source=1)


def test_one_candidate_at_a_time() -> None:
    node = OneNode()
    assert node.asked(EQUAL, 1_000, source=1)
    assert not node.asked(EQUAL, 1_010, source=2)
    assert node.asked(EQUAL, 1_020, source=1)
    assert node.asked(EQUAL, 1_120, source=2)


def test_of_two_who_ask_at_once_one_gives_way() -> None:
    node = OneNode()
    node.run(0, 600)
    assert not node.asked(EQUAL, 600, source=2), "the lower index goes on"
    assert node.asked(Canvass(1, 5, 101), 601, source=2)
    node.oracle.receive(1, Support(99, granted=True), 602)
    assert not node.oracle.suggests(602)


def test_who_cannot_promise_supports_nobody() -> None:
    node = OneNode()
    node.votes = False
    assert not node.asked(EQUAL, 1_000)


def test_a_removed_node_is_not_supported() -> None:
    node = OneNode()
    node.configuration = Configuration((0, 2), removed=(1,), version=3)
    assert not node.asked(EQUAL, 1_000)


def test_during_a_change_a_majority_of_both_sides_is_needed() -> None:
    node = OneNode()
    node.configuration = Configuration((0, 1, 2), outgoing=(0, 3, 4), version=2)
    node.peers = [1, 2, 3, 4]
    [*asked] = {peer for peer, _ in node.run(0, 520)}
    assert asked == [1, 2, 3, 4]
    number = max(m.round for _, m in node.sent if isinstance(m, Canvass))
    for peer, chosen in ((1, False), (2, False), (3, True)):
        node.oracle.receive(peer, Support(number, granted=True), 521)
        assert node.oracle.suggests(521) is chosen


def test_old_and_refusing_answers_do_not_count() -> None:
    node = OneNode()
    node.run(0, 520)
    number = max(m.round for _, m in node.sent if isinstance(m, Canvass))
    node.oracle.receive(1, Support(number - 1, granted=True), 521)
    node.oracle.receive(2, Support(number, granted=False), 521)
    assert not node.oracle.suggests(521)
    node.oracle.receive(2, Support(number, granted=True), 522)
    assert node.oracle.suggests(522)
    node.oracle.resign(523, 900)
    assert not node.oracle.suggests(600)


def test_own_stops_are_no_silence_of_others() -> None:
    """The rounds of that time wait in the socket, and a candidate's question may come first."""
    node = OneNode()
    node.run(0, 100)
    node.oracle.hear(2, 100)
    better = Canvass(7, 5, 101)
    assert not node.asked(better, 5_000)
    node.run(5_020, 5_300)
    assert node.asked(better, 5_300)


def test_a_leader_is_chosen_while_a_majority_follows_it() -> None:
    """Also one that took over in a hand-over."""
    node = OneNode(role=Role.SERVING)
    node.age_ms = 10
    node.run(0, 100)
    assert node.oracle.suggests(100)
    assert not node.asked(EQUAL, 100)
    for now_ms in range(100, 340, 20):
        node.age_ms = now_ms - 90
        node.oracle.look(now_ms)
        assert node.oracle.suggests(now_ms)
    node.age_ms = 250
    node.oracle.look(340)
    assert not node.oracle.suggests(340)


def test_a_leader_that_was_stopped_waits_for_answers_before_it_gives_up() -> None:
    """Nobody may have been elected meanwhile: then it leads on, without an election."""
    node = OneNode(role=Role.SERVING)
    node.age_ms = 10
    node.run(0, 100)
    node.age_ms = 1_210
    for now_ms in range(1_300, 1_500, 20):
        node.oracle.look(now_ms)
        assert node.oracle.suggests(now_ms)
        node.age_ms += 20
    node.run(1_500, 1_600)
    assert not node.oracle.suggests(1_600)


def test_a_cluster_of_one_chooses_itself_at_once() -> None:
    node = OneNode()
    node.configuration = Configuration((0,))
    node.oracle.look(0)
    assert node.oracle.suggests(0)


# --------------------------------------------------------------------------- delays


@pytest.mark.parametrize(
    ("delay_ms", "factor"),
    [(0, 1.0), (60, 1.0), (100, 1.0), (150, 1.5), (400, 4.0), (DELAY_MS_MAX, FACTOR_MAX)],
)
def test_the_longest_delay_stretches(delay_ms: int, factor: float) -> None:
    delays = Delays()
    delays.note(delay_ms, 1_000)
    delays.note(20, 1_010)
    assert delays.factor(1_000) == factor


def test_a_stop_is_no_delay() -> None:
    delays = Delays()
    delays.note(DELAY_MS_MAX + 1, 1_000)
    assert delays.factor(1_000) == 1.0


def test_a_delay_fades_within_a_minute() -> None:
    delays = Delays()
    delays.note(400, 1_000)
    factors = [delays.factor(1_000 + age_ms) for age_ms in range(0, FADE_MS + 1, 1_000)]
    assert factors == sorted(factors, reverse=True)
    assert factors[30] == 2.0
    assert factors[46] == 1.0, "what is left of it is no more than rounds need"


def test_a_shorter_delay_counts_once_the_longer_one_has_faded() -> None:
    delays = Delays()
    delays.note(400, 0)
    delays.note(250, 10_000)
    assert delays.factor(10_000) == pytest.approx(400 * 50 / 60 / 100)
    delays.note(250, 30_000)
    assert delays.factor(30_000) == 2.5
