"""A cluster in virtual time whose nodes elect by themselves, with the peer oracle.

Real replication, real oracles and the real rule that connects them, by the product's timing.
Messages take a millisecond. Nodes are killed, stopped and slowed down; links are cut, in one
direction or both, and lose messages. The judge of the other simulations watches every step.
"""

from __future__ import annotations

from random import Random

from delaylog.broker.cluster.member_counts import MemberCounts
from delaylog.broker.cluster.member_oracle import Candidacy
from delaylog.replication.messages import Append, Canvass, Message, Resigned, Support
from delaylog.replication.oracle import LogState, PeerOracle, View
from tests.replication.sim_node import SimNode
from tests.replication.test_liveness import CalmWorld

LOOK_MS = 20


class Elector:
    """The oracle of one life of a node, and what a member does with it."""

    def __init__(self, world: ElectedWorld, node: SimNode) -> None:
        self.world, self.node = world, node
        self.oracle = PeerOracle(
            node.number,
            view=self.view,
            send=lambda peer, message: world.send(node.number, peer, message),
            random=Random(world.random.random()),
        )
        self.candidacy = Candidacy(MemberCounts())
        self.look_ms = world.now_ms + world.random.randint(0, LOOK_MS)

    def view(self) -> View:
        replication, log = self.node.replication, self.node.disk.log
        leader = replication.leader
        fit = replication.may_lead and self.node.number not in self.world.unfit
        return View(
            configuration=replication.configuration,
            votes=replication.votes,
            log=LogState(log.epochs.last_epoch, log.end) if fit else None,
            role=replication.role,
            gate_age_ms=None if leader is None else leader.gate.age_ms(self.world.now_ms),
            peers=[n.number for n in self.world.nodes if n.alive],
        )

    def look(self) -> None:
        """The poll of a member."""
        now = self.node.now
        self.oracle.look(now.boot_ms)
        self.candidacy.look(
            self.node.replication,
            now,
            chosen=self.oracle.suggests(now.boot_ms),
            silence_ms=self.oracle.silence_ms(now.boot_ms),
        )
        self.resign()
        self.node.settle()

    def resign(self) -> None:
        for event in [e for e in self.node.replication._events if isinstance(e, Resigned)]:
            self.oracle.resign(self.world.now_ms, event.until_ms)

    def deliver(self, source: int, message: Message) -> None:
        now_ms = self.world.now_ms
        if isinstance(message, Canvass | Support):
            self.oracle.receive(source, message, now_ms)
            return
        self.node.deliver(source, message)
        if isinstance(message, Append):
            if message.epoch == self.node.replication.promised:
                self.oracle.hear(source, now_ms)
            else:
                self.oracle.hear_deposed(source, now_ms)


class ElectedWorld(CalmWorld):
    """No faults but those that a test makes."""

    def __init__(self, seed: int, size: int = 3) -> None:
        super().__init__(seed, size)
        self.unfit: set[int] = set()
        self.stops: set[int] = set()
        self.slow_ms = 0
        """Each node does nothing for up to this time, again and again."""
        self.rests = dict.fromkeys(range(size), (0, 0))
        """Until when each node rests, and until when it runs after that."""
        self.cuts: set[tuple[int, int]] = set()
        """(source, target) between which nothing passes."""
        self.inbox: dict[int, list[tuple[int, Message]]] = {n: [] for n in range(size)}
        self.served: list[tuple[int, int]] = []
        """(when, node) of each leadership."""
        self.electors = [Elector(self, node) for node in self.nodes]

    def tick(self) -> None:
        """One millisecond."""
        self.now_ms += 1
        net, self.net = self.net, []
        for source, target, message in net:
            if (source, target) not in self.cuts and self.random.random() >= self.losses:
                self.inbox[target].append((source, message))
        for node in self.nodes:
            if node.alive and not self._rests(node.number):
                self._run(node)
        leader = self.serving()
        if leader is not None and (not self.served or self.served[-1][1] != leader.number):
            self.served.append((self.now_ms, leader.number))

    def _rests(self, number: int) -> bool:
        if self.slow_ms and self.now_ms >= self.rests[number][1]:
            # Half of the time, as on a machine with too many processes.
            rests, runs = (self.random.randint(1, self.slow_ms) for _ in range(2))
            self.rests[number] = self.now_ms + rests, self.now_ms + rests + runs
        return number in self.stops or self.now_ms < self.rests[number][0]

    def _run(self, node: SimNode) -> None:
        elector = self.electors[node.number]
        inbox, self.inbox[node.number] = self.inbox[node.number], []
        for source, message in inbox:
            elector.deliver(source, message)
        self._turn(node)
        elector.resign()
        if self.now_ms >= elector.look_ms:
            elector.look_ms = self.now_ms + LOOK_MS
            elector.look()

    def kill(self, node: SimNode) -> None:
        """The kernel closes its connections, which its peers see at once."""
        self.crash(node)
        self.inbox[node.number].clear()
        # Nothing arrives behind the end of a connection.
        self.net = [each for each in self.net if node.number not in each[:2]]
        self.stops.discard(node.number)
        for other in self.nodes:
            if other.alive and (node.number, other.number) not in self.cuts:
                self.electors[other.number].oracle.ended(node.number, self.now_ms)

    def revive(self, node: SimNode) -> None:
        self.restart(node)
        self.electors[node.number] = Elector(self, node)
        for other in self.nodes:
            if other.alive:
                other.replication.reconnect(node.number)
                node.replication.reconnect(other.number)

    def followed(self) -> SimNode | None:
        """The leader that a majority follows."""
        node = self.serving()
        if node is None or node.replication.leader is None:
            return None
        age_ms = node.replication.leader.gate.age_ms(self.now_ms)
        return node if age_ms is not None and age_ms < 250 else None

    def until_followed(self, than: SimNode | None = None, within_ms: int = 5_000) -> int:
        """Milliseconds until a node other than `than` leads a majority."""
        began_ms = self.now_ms
        while self.followed() in (None, than):
            assert self.now_ms < began_ms + within_ms, f"nobody leads, seed {self.seed}"
            self.tick()
        return self.now_ms - began_ms
