"""Small pieces for tests of single classes: a log with a history, and what was sent."""

from __future__ import annotations

from random import Random

from delaylog.replication.epochs import EpochTick
from delaylog.replication.messages import Message
from delaylog.replication.node import ReplicationNode
from delaylog.replication.replica import Now, Replica, Timing
from tests.replication.memory_disk import MemoryDisk, MemoryLog, MemoryTicks

FRAME = 72
"""A frame with one message; an EPOCH_BEGIN has 64 bytes."""
BEGIN = 64


class Outbox:
    """Remembers what was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Message]] = []

    def __call__(self, target: int, message: Message) -> None:
        self.sent.append((target, message))

    def take(self) -> list[tuple[int, Message]]:
        out, self.sent = self.sent, []
        return out

    def last(self) -> Message:
        return self.sent[-1][1]


def extend(log: MemoryLog, history: list[tuple[int, int]]) -> None:
    """Append leaderships: (epoch, how many messages) each, all of it durable."""
    for epoch, count in history:
        tick = EpochTick(epoch)
        if log.epochs.last_epoch != epoch:
            log.append_begin(tick, 0)
        for _ in range(count):
            log.append_row(len(log.ends), 0, tick, 0)
    log.sync()


def log_of(*history: tuple[int, int]) -> MemoryLog:
    log = MemoryLog()
    extend(log, list(history))
    return log


def at(ms: int) -> Now:
    return Now(ms, 1_000_000 + ms)


class Cluster:
    """Real nodes; every message waits until it is asked for."""

    def __init__(self, size: int = 3, timing: Timing | None = None, *, spares: int = 0) -> None:
        """`spares` = further nodes that are no members yet."""
        self.disks = [MemoryDisk(node, size) for node in range(size + spares)]
        self.timing = timing or Timing()
        self.nodes = [self._start(disk) for disk in self.disks]
        self.now = at(0)
        self.down: set[int] = set()

    def _start(self, disk: MemoryDisk) -> ReplicationNode:
        return ReplicationNode(
            log=disk.log,
            meta=disk.meta,
            ticks=disk.ticks,
            random=Random(disk.meta.meta.node_id),
            timing=self.timing,
        )

    def restart(self, node: int) -> None:
        self.disks[node].kill()
        self.nodes[node] = self._start(self.disks[node])

    def wipe(self, node: int) -> None:
        self.disks[node].wipe()
        self.nodes[node] = self._start(self.disks[node])

    def turn(self) -> int:
        """Deliver what is waiting, once; returns how much there was."""
        net = [
            (source, target, message)
            for source, node in enumerate(self.nodes)
            for target, message in node.take_messages()
            if not {source, target} & self.down
        ]
        for source, target, message in net:
            self.nodes[target].receive(source, message, self.now)
        for node, disk in zip(self.nodes, self.disks, strict=True):
            if disk.log.durable_end < disk.log.end:
                disk.log.sync()
                node.note_durable(self.now)
        return len(net)

    def settle(self) -> None:
        while self.turn():
            pass

    def pass_ms(self, span_ms: int) -> None:
        """Time passes by steps of a millisecond."""
        for _ in range(span_ms):
            self.now = at(self.now.boot_ms + 1)
            for number, node in enumerate(self.nodes):
                if number not in self.down:
                    node.timer(self.now)
            self.settle()

    def lead(self, node: int) -> None:
        self.nodes[node].suggest_leader(self.now)
        self.settle()
        assert self.nodes[node].leadership.serving

    def send(self, node: int, count: int = 1) -> None:
        leader = self.nodes[node].leader
        assert leader is not None
        for _ in range(count):
            log = self.disks[node].log
            log.append_row(len(log.ends), 0, leader.order.tick, 0)
        self.nodes[node].note_appended()
        self.settle()


def replica(node: int, log: MemoryLog, ticks: MemoryTicks, out: Outbox, **timing: int) -> Replica:
    """What the parts of a node share."""
    return Replica(node, log, ticks, Timing(**timing), out, lambda event: None, log.cut)
