"""A whole cluster in one thread, from one seed: network, disks, clocks, and an oracle that lies.

Messages come in any order, twice or never; a node is killed, loses power or its whole disk, is cut
off, is told that it leads at any time; time passes by little steps and by sudden jumps, which is
what a stopped process sees. The judge looks on at every step.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from random import Random

from delaylog.replication import wire
from delaylog.replication.errors import ChangeRefusedError
from delaylog.replication.messages import Message, Role
from delaylog.replication.replica import Timing
from tests.replication.judge import Judge
from tests.replication.memory_disk import MemoryDisk
from tests.replication.sim_node import SECOND_MS, SimNode

NET_MAX_EACH = 20
"""Messages under way for each node; beyond that the older half is lost."""


class World:
    """One schedule."""

    def __init__(
        self,
        seed: int,
        size: int = 3,
        *,
        wipes: float | None = None,
        window: int | None = None,
        hasty: bool = False,
        changes: float = 0.0,
        blank: bool = True,
        disk: type[MemoryDisk] = MemoryDisk,
    ) -> None:
        self.random = random = Random(seed)
        self.seed = seed
        self.timing = Timing(
            round_ms=8,
            busy_round_ms=4,
            gate_ms=50,
            retry_min_ms=1,
            retry_max_ms=4 if hasty else 15,
            yield_ms=0 if hasty else random.choice((0, 20)),
            fetch_stall_ms=25,
            serve_deadline_ms=150,
            resign_ms=30,
            handover_deadline_ms=60,
            append_bytes_max=1 if hasty else random.choice((1, 200, 500)),
            window_bytes_max=window or random.choice((500, 2_000)),
        )
        """`hasty` = leaders follow each other as fast as can be."""
        spares = 2 if changes else 0
        """Nodes that are no members at first."""
        self.disk = disk
        self.changing = changes > 0
        self.now_ms = 1_000
        self.judge = Judge(self.timing.gate_ms, size)
        self.net: list[tuple[int, int, Message]] = []
        self.cut_off: int | None = None
        self.refused = 0
        self.sent = 0
        self.wire = random.random() < 0.1
        """Every message goes through its bytes."""
        self.crash_in_dispatch = random.choice((0.0, 0.02))
        self.losses = random.choice((0.0, 0.05, 0.25))
        self.power = random.choice((0.0, 0.0, 0.5))
        """The share of crashes that take what was not synced."""
        self.wipes = random.choice((0.0, 0.0, 0.2)) if wipes is None else wipes
        self.wiped: int | None = None
        """At most one node at a time has lost its disk: more failures than that lose data."""
        weighted: tuple[tuple[float, Callable[[SimNode], bool]], ...] = (
            (0.46, self.deliver),
            (random.choice((0.06, 0.2)), self.sync),
            (0.12, self.dispatch),
            (0.09, self.timer),
            (0.08, self.propose),
            (0.06 if hasty else random.choice((0.004, 0.01, 0.04)), self.word),
            (random.choice((0.002, 0.008, 0.02)), self.crash),
            (0.05, self.restart),
            (random.choice((0.0, 0.02, 0.05)), self.hand_over),
            (0.005, self.partition),
            (0.004, self.jump),
            (0.004, self.sync_tick),
            (0.004, self.reconnect),
            (0.002, self.renew),
            (0.01, self.readmit),
            (changes, self.change),
        )
        self.bounds = list(accumulate(weight for weight, _ in weighted))
        self.actions = [action for _, action in weighted]
        skews = random.choice((0, 0, 15, 200))
        self.nodes = [
            SimNode(self, number, size, random.randint(-skews, skews))
            for number in range(size + spares)
        ]
        for node in self.nodes[size:] if blank else ():
            # As a broker does that finds its folder blank: it has to be let in first.
            node.disk.wipe()
            node.start()

    # ------------------------------------------------------------------ what happens

    def send(self, source: int, target: int, message: Message) -> None:
        if self.wire:
            [message] = wire.Decoder().feed(b"".join(wire.encode(message)))
        self.net.append((source, target, message))

    def step(self) -> None:
        """One action, chosen by the seed."""
        random = self.random
        self.now_ms += random.randint(0, 2)
        for _ in range(3):
            action = self.actions[bisect(self.bounds, random.random() * self.bounds[-1])]
            if action(self.any()):
                break
        if len(self.net) > NET_MAX_EACH * len(self.nodes):
            del self.net[: len(self.net) // 2]

    def any(self) -> SimNode:
        return self.nodes[int(self.random.random() * len(self.nodes))]

    # Actions return whether there was anything to do; if not, another one is chosen.

    def deliver(self, _: SimNode) -> bool:
        random = self.random
        if not self.net:
            return False
        index = random.randrange(len(self.net)) if random.random() < 0.3 else 0
        source, target, message = self.net.pop(index)
        if random.random() < 0.05:
            self.net.append((source, target, message))
        lost = random.random() < self.losses or self.cut_off in (source, target)
        if not lost and self.nodes[target].alive:
            self.nodes[target].deliver(source, message)
        return True

    def sync(self, node: SimNode) -> bool:
        if not node.alive or node.disk.log.durable_end == node.disk.log.end:
            return False
        node.sync()
        return True

    def dispatch(self, _: SimNode) -> bool:
        leader = self.some_leader()
        if leader is not None:
            leader.dispatch()
        return leader is not None

    def timer(self, _: SimNode) -> bool:
        due = [node for node in self.nodes if node.alive and node.timer_due()]
        if due:
            self.random.choice(due).timer()
        return bool(due)

    def propose(self, _: SimNode) -> bool:
        leader = self.some_leader()
        if leader is None or not leader.replication.leadership.may_append():
            return False
        for _ in range(self.random.choice((1, 1, 2, 4))):
            self.sent += 1
            leader.propose(self.sent, leader.second + self.random.randint(-1, 4))
        return True

    def word(self, node: SimNode) -> bool:
        """The oracle says something, true or not."""
        if not node.alive:
            return False
        if self.random.random() < 0.1:
            node.replication.unsuggest_leader()
        else:
            node.replication.suggest_leader(node.now, at_once=self.random.random() < 0.7)
        node.settle()
        return True

    def hand_over(self, _: SimNode) -> bool:
        for node in self.leaders():
            if node.replication.hand_over(self.any().number, node.now):
                node.settle()
                return True
        return False

    def partition(self, node: SimNode) -> bool:
        self.cut_off = self.random.choice((None, None, node.number))
        return True

    def jump(self, _: SimNode) -> bool:
        """Nobody ran for a while."""
        self.now_ms += self.random.choice((10, 30, 60, 120))
        return True

    def sync_tick(self, node: SimNode) -> bool:
        node.disk.ticks.sync()
        return True

    def reconnect(self, node: SimNode) -> bool:
        if node.alive:
            for peer in node.replication.configuration.others(node.number):
                node.replication.reconnect(peer)
        return node.alive

    def renew(self, _: SimNode) -> bool:
        """A leader begins anew, as it does to count a node that is let in again."""
        for node in self.leaders():
            node.replication.renew(node.now)
            node.settle()
        return bool(self.leaders())

    def change(self, _: SimNode) -> bool:
        """An operator asks the leader for other members."""
        leader = self.some_leader()
        if leader is None:
            return False
        now = leader.replication.configuration
        known = {*now.nodes}
        spare = [node.number for node in self.nodes if node.number not in known]
        learners, voters = {*now.learners}, {*now.voters}
        draw = self.random.random()
        if draw < 0.3 and spare:
            change = now.with_learners({*learners, self.random.choice(spare)})
        elif draw < 0.4 and learners:
            change = now.with_learners(learners - {self.random.choice(now.learners)})
        else:
            # Never fewer than three: one disk may be lost at any time.
            pool = sorted(voters | learners)
            count = self.random.randint(min(3, len(pool)), min(7, len(pool)))
            change = now.with_voters(self.random.sample(pool, count))
        if change.voters == now.voters and change.learners == now.learners:
            return False
        try:
            leader.replication.leadership.change(change)
        except ChangeRefusedError:
            return False
        self.judge.stats["changes"] += 1
        return True

    def readmit(self, _: SimNode) -> bool:
        """Every leader, also one whose time has passed, lets in whom it may."""
        blank = [node.number for node in self.nodes if not node.disk.meta.meta.voter]
        if self.wiped is not None and self.wiped not in blank:
            self.wiped = None
        for node in self.leaders():
            for number in blank:
                if number != node.number:
                    self.judge.stats["readmissions"] += node.replication.readmit(number)
                    node.settle()
        return bool(blank)

    def crash(self, node: SimNode) -> bool:
        random = self.random
        if not node.alive:
            return False
        node.alive = False
        node.led = None
        node.serves = False
        # Data may be lost for good only with a majority's disks.
        if self.wiped is None and len(self.nodes) > 1 and random.random() < self.wipes:
            self.wiped = node.number
            node.disk.wipe()
            self.judge.stats["wiped"] += 1
            # Its connections end with it, and what was under way on them.
            self.net = [each for each in self.net if node.number not in each[:2]]
            self.judge.told.pop(node.number, None)
        elif random.random() < self.power:
            self.judge.tick_lost |= node.disk.power_cut(random)
        else:
            node.disk.kill()
        node.last_data = bytes(node.disk.log.data)
        return True

    def restart(self, node: SimNode) -> bool:
        if node.alive:
            return False
        node.start()
        self.judge.check_promise(node)
        node.settle()
        if node.number == self.wiped:
            for other in self.nodes:
                if other.alive:
                    other.replication.reconnect(node.number)
        return True

    def leaders(self) -> list[SimNode]:
        return [node for node in self.nodes if node.alive and node.led is not None]

    def some_leader(self) -> SimNode | None:
        """Mostly the newest."""
        leaders = self.leaders()
        if len(leaders) < 2:
            return leaders[0] if leaders else None
        if self.random.random() < 0.3:
            return self.random.choice(leaders)
        return max(leaders, key=lambda node: node.replication.promised)

    # ------------------------------------------------------------------ whole runs

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def _fit_to_lead(self) -> SimNode:
        """As an election has it: who knows the newest log, if there have been changes."""
        fit = [
            node
            for node in self.nodes
            if node.replication.votes and node.number in node.replication.configuration.voters
        ]

        def rank(node: SimNode) -> tuple[int, int]:
            log = node.disk.log
            if not self.changing:
                return node.replication.promised, 0
            return log.epochs.last_epoch, log.end

        return max(fit, key=rank)

    def calm(self, bound_ms: int) -> None:
        """Faults end: within the bound a leader serves and hands out all that is due."""
        self.cut_off = None
        self.crash_in_dispatch = self.losses = 0.0
        for node in self.nodes:
            self.restart(node)
        end_ms = self.now_ms + bound_ms
        target = self.now_ms // SECOND_MS
        while self.now_ms < end_ms:
            self.now_ms += 1
            for _ in range(len(self.net)):
                source, to, message = self.net.pop(0)
                self.nodes[to].deliver(source, message)
            serving = [n for n in self.nodes if n.replication.role == Role.SERVING]
            for node in self.nodes:
                node.timer()
                self.sync(node)
                node.dispatch()
            if not serving and self.now_ms % 20 == 0:
                best = self._fit_to_lead()
                best.replication.suggest_leader(best.now)
                best.settle()
            newest = max(serving, key=lambda n: n.replication.promised, default=None)
            if newest is not None and newest.led is not None:
                done = newest.led.order.tick
                if done.second >= target and done.position == newest.disk.log.end:
                    self.judge.check_all_handed(newest.disk.log, target)
                    return
        raise AssertionError(f"nobody serves {bound_ms} ms after the faults ended")
