"""How long there is no serving leader, and what a stopped leader may still do (I12, I13).

Method: one cluster in virtual time with the product's own timing: half a millisecond of network,
fsyncs of 4 to 16 ms, an oracle that names a new leader 220 to 500 ms after a kill, as measured. A
stopped node gets no input until it goes on, and then all of it at once.
"""

from __future__ import annotations

from random import Random

from delaylog.replication.messages import Role
from delaylog.replication.replica import Timing
from tests.effort import tries
from tests.replication.sim_node import SimNode
from tests.replication.world import World

FSYNC_MS = (4, 16)
ELECT_MS = (220, 500)


class CalmWorld(World):
    """No faults but those that a test makes."""

    def __init__(self, seed: int, size: int = 3) -> None:
        super().__init__(seed, size, wipes=0.0)
        self.timing = Timing()
        self.losses = self.crash_in_dispatch = 0.0
        self.stopped: SimNode | None = None
        self.synced_at: dict[int, int] = {}
        for node in self.nodes:
            node.skew_ms = 0
            node.start()

    def tick(self) -> None:
        """One millisecond: messages of the last one arrive, fsyncs end, timers and wheels turn."""
        self.now_ms += 1
        net, self.net = self.net, []
        for source, target, message in net:
            node = self.nodes[target]
            if node is self.stopped:
                self.net.append((source, target, message))
            elif node.alive:
                node.deliver(source, message)
        for node in self.nodes:
            if node.alive and node is not self.stopped:
                self._turn(node)

    def _turn(self, node: SimNode) -> None:
        if node.timer_due():
            node.timer()
        if node.disk.log.durable_end < node.disk.log.end:
            at_ms = self.synced_at.setdefault(
                node.number, self.now_ms + self.random.randint(*FSYNC_MS)
            )
            if at_ms <= self.now_ms:
                del self.synced_at[node.number]
                node.sync()
        node.dispatch()

    def serving(self) -> SimNode | None:
        found = [n for n in self.nodes if n.alive and n.replication.role == Role.SERVING]
        return max(found, key=lambda node: node.replication.promised, default=None)

    def until_serving(self, than: SimNode | None = None, *, word: SimNode | None = None) -> int:
        """Milliseconds until a node other than `than` serves; `word` is suggested all the time."""
        began_ms = self.now_ms
        while self.serving() in (None, than):
            assert self.now_ms < began_ms + 5_000
            if word is not None:
                self.suggest(word)
            self.tick()
        return self.now_ms - began_ms

    def suggest(self, node: SimNode) -> None:
        node.replication.suggest_leader(node.now)
        node.settle()

    def load(self, span_ms: int) -> None:
        """Messages come in all the time, most due soon."""
        for _ in range(span_ms):
            leader = self.serving()
            if leader is not None and self.random.random() < 0.2:
                self.sent += 1
                leader.propose(self.sent, leader.second + self.random.randint(0, 3))
            self.tick()


def started(seed: int, size: int = 3) -> tuple[CalmWorld, SimNode]:
    world = CalmWorld(seed, size)
    world.suggest(world.nodes[0])
    world.until_serving()
    world.load(200)
    leader = world.serving()
    assert leader is not None
    return world, leader


def test_another_node_serves_within_a_second_of_a_kill() -> None:
    tail = []
    for seed in range(tries(100)):
        world, old = started(seed, size=3 if seed % 2 else 5)
        world.crash(old)
        began_ms = world.now_ms
        for _ in range(Random(seed).randint(*ELECT_MS)):
            world.tick()
        heir = next(node for node in world.nodes if node.alive)
        world.until_serving(old, word=heir)
        tail.append(world.now_ms - began_ms)
        world.load(100)
        assert world.judge.stats["commits"] > 0
    assert max(tail) < 1_000


def test_two_suggested_leaders_do_not_duel_for_ever() -> None:
    """Both are suggested again and again: a node ignores what comes soon after an election."""
    for seed in range(tries(60)):
        world, old = started(seed)
        world.crash(old)
        began_ms = world.now_ms
        while world.serving() in (None, old):
            if (world.now_ms - began_ms) % 50 == 0:
                for node in world.nodes:
                    if node.alive:
                        world.suggest(node)
            world.tick()
            assert world.now_ms - began_ms < 500


def test_a_lost_candidate_does_not_hold_up_another() -> None:
    for seed in range(tries(60)):
        world, old = started(seed)
        world.crash(old)
        first, second = (node for node in world.nodes if node.alive)
        world.suggest(first)
        world.tick()
        world.crash(first)
        world.restart(old)
        assert world.until_serving(word=second) < 500


def test_the_old_leader_of_a_handover_does_not_fight_for_it() -> None:
    """Its oracle goes on for a while to say that it should lead."""
    for seed in range(tries(30)):
        world, old = started(seed)
        assert old.replication.hand_over(2, old.now)
        old.settle()
        for _ in range(700):
            world.tick()
            world.suggest(old)
        heir = world.serving()
        assert heir is not None
        assert heir.number == 2
        assert world.judge.stats["leaders"] == 2


def test_nodes_that_promised_give_their_candidate_time() -> None:
    """Every node's oracle suggests itself all the time: one of them leads soon."""
    for seed in range(tries(30)):
        world, old = started(seed)
        world.crash(old)
        for _ in range(600):
            for node in world.nodes:
                if node.alive and world.serving() is None:
                    world.suggest(node)
            world.tick()
        assert world.serving() is not None
        assert world.judge.stats["leaders"] <= 3


def test_the_gate_stays_open_while_all_is_well() -> None:
    world, leader = started(1)
    closed = 0
    for _ in range(1_000):
        world.tick()
        closed += not leader.replication.leadership.may_dispatch(leader.now)
    # A round every 50 ms is as long as the gate: busy leaders send one every 10.
    leader.replication.leadership.busy = True
    world.load(50)
    for _ in range(1_000):
        world.tick()
        assert leader.replication.leadership.may_dispatch(leader.now)
    assert closed < 100


def test_a_stopped_leader_does_nothing_before_it_has_heard_of_its_successor() -> None:
    for seed in range(tries(30)):
        world, old = started(seed)
        world.stopped = old
        for _ in range(300):
            world.tick()
        world.until_serving(old, word=world.nodes[1])
        world.load(1_700)
        handed = world.judge.stats["handed"]
        epoch = old.replication.promised
        # It goes on: its engine runs first, and clients still talk to it. What it may find
        # committed now the judge knows to be in the successor's log.
        world.stopped = None
        old.propose(1_000_000, old.second - 1)
        old.sync()
        old.dispatch()
        assert not old.replication.leadership.may_dispatch(old.now)
        assert world.judge.stats["handed"] == handed
        assert 1_000_000 not in world.judge.places
        world.load(300)
        assert old.replication.role == Role.FOLLOWER
        assert old.replication.promised > epoch
        assert 1_000_000 not in world.judge.places
