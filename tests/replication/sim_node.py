"""One node of a simulated cluster: the real replication classes and a small engine around them.

The engine is as simple as one can be: its wheel is a dict of due seconds over committed frames,
and it hands out by its own clock. What it may do and in which order it asks the real classes.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from delaylog.replication.errors import PeerError
from delaylog.replication.leader import Leader
from delaylog.replication.messages import (
    Fetched,
    Message,
    Role,
    Serving,
    SteppedDown,
    TakeoverAsked,
)
from delaylog.replication.node import ReplicationNode
from delaylog.replication.replica import Now

if TYPE_CHECKING:
    from tests.replication.world import World

SECOND_MS = 20
"""A second of the tests is this long, so that a schedule of half a second sees many."""


class SimNode:
    """A node, alive or not."""

    def __init__(self, world: World, number: int, size: int, skew_ms: int) -> None:
        self.world = world
        self.number = number
        self.skew_ms = skew_ms
        self.disk = world.disk(number, size)
        self.alive = True
        self.last_data = b""
        self.start()

    def start(self) -> None:
        """Begin a life on what the disk holds."""
        self.replication = ReplicationNode(
            log=self.disk.log,
            meta=self.disk.meta,
            ticks=self.disk.ticks,
            random=Random(self.world.random.random()),
            timing=self.world.timing,
        )
        self.alive = True
        self.last_commit = 0
        self.last_changes = -1
        self.led: Leader | None = None
        self.serves = False
        self.wheel: dict[int, list[tuple[int, int, int]]] = {}
        self.late: list[tuple[int, int, int]] = []
        self.step: int | None = None

    # ------------------------------------------------------------------ inputs

    @property
    def now(self) -> Now:
        return Now(self.world.now_ms, self.world.now_ms + self.skew_ms)

    @property
    def second(self) -> int:
        """By this node's clock."""
        return (self.world.now_ms + self.skew_ms) // SECOND_MS

    def deliver(self, source: int, message: Message) -> None:
        if isinstance(message, Fetched):
            self._deliver_fetched(source, message)
        else:
            try:
                self.replication.receive(source, message, self.now)
            except PeerError:
                self.world.refused += 1
        self.settle()

    def _deliver_fetched(self, source: int, message: Fetched) -> None:
        # A candidate has promised its own epoch.
        epoch = self.replication.promised
        adopts = self.replication.role == Role.ADOPTING
        changes = self.disk.log.changes
        try:
            self.replication.receive(source, message, self.now)
        except PeerError:
            self.world.refused += 1
        if adopts and self.disk.log.changes > changes:
            self.world.judge.note_used_fetch(epoch, message)

    def sync(self) -> None:
        self.disk.log.sync()
        self.replication.note_durable(self.now)
        self.settle()

    def timer_due(self) -> bool:
        due_ms = self.replication.next_timer_ms()
        return due_ms is not None and due_ms <= self.world.now_ms

    def timer(self) -> None:
        self.replication.timer(self.now)
        self.settle()

    def settle(self) -> None:
        """After each input: see what changed, then let messages out."""
        judge, replication = self.world.judge, self.replication
        log = self.disk.log
        if log.changes != self.last_changes:
            self.last_changes = log.changes
            judge.check_log(self)
        leader = replication.leader
        if leader is not None and leader is not self.led:
            judge.note_begin(self, leader.epoch)
        self.led = leader
        commit = replication.commit
        if commit != self.last_commit:
            judge.check_commit(self, commit)
        if leader is None:
            self.serves = False
        for event in replication.take_events():
            if isinstance(event, Serving):
                judge.note_serving(event.epoch, event.tick)
                self._begin_dispatch(event)
            elif isinstance(event, SteppedDown):
                self.serves = self.serves and leader is not None
            elif isinstance(event, TakeoverAsked):
                judge.heirs[replication.promised] = event.epoch
        for target, message in replication.take_messages():
            judge.note_sent(self, message, self.world.now_ms)
            self.world.send(self.number, target, message)

    # ------------------------------------------------------------------ the small engine

    def _begin_dispatch(self, event: Serving) -> None:
        assert self.led is not None
        self.serves = True
        self.step = None
        self.wheel, self.late = {}, []
        order = self.led.order
        for row in self.disk.log.rows(0, order.looked):
            if row[2] > order.tick.second:
                self.wheel.setdefault(row[2], []).append(row)

    def _take_committed(self, leader: Leader) -> None:
        start, end = leader.order.take(self._committed(leader))
        for row in self.disk.log.rows(start, end):
            if row[2] <= leader.order.tick.second:
                self.late.append(row)
            else:
                self.wheel.setdefault(row[2], []).append(row)

    def _committed(self, leader: Leader) -> int:
        """Up to where frames may be handed out."""
        return leader.commit

    def dispatch(self) -> None:
        """Hand out what came late, and begin or end a second."""
        leader = self.led
        if leader is None or not self.serves or self.replication.role != Role.SERVING:
            return
        order, before = leader.order, leader.order.tick
        self._take_committed(leader)
        if self.replication.leadership.may_dispatch(self.now):
            ripe = [row for row in self.late if row[2] <= self.second]
            self.late = [row for row in self.late if row[2] > self.second]
            self._deliver(leader.epoch, ripe)
            order.cover(min((row[0] for row in self.late), default=order.looked))
            self._turn(leader)
        if not self.alive:
            return
        if order.tick != before:
            self.world.judge.check_tick(before, order.tick)
        self.settle()

    def _turn(self, leader: Leader) -> None:
        order = leader.order
        leadership = self.replication.leadership
        if not (leadership.may_append() and leadership.may_dispatch(self.now)):
            self.step = None
        elif self.step is not None:
            seconds = sorted(due for due in self.wheel if due <= self.step)
            ripe = [row for due in seconds for row in self.wheel.pop(due)]
            if ripe and self.world.random.random() < self.world.crash_in_dispatch:
                self._deliver(leader.epoch, ripe[: len(ripe) // 2])
                self.world.crash(self)
                return
            self._deliver(leader.epoch, ripe)
            order.finish(self.now.wall_ms)
            self.step = None
        elif order.tick.second < self.second:
            first = min((due for due in self.wheel if due <= self.second), default=self.second)
            self.step = max(first, order.tick.second + 1)
            order.begin(self.step, 0)

    def _deliver(self, epoch: int, rows: list[tuple[int, int, int]]) -> None:
        for _, number, due in rows:
            self.world.judge.note_handed(epoch, number, due, self.world.now_ms, self.second)

    def propose(self, number: int, due: int) -> None:
        """A client sends a message."""
        leader = self.led
        if leader is not None and self.replication.leadership.may_append():
            tick = leader.order.tick
            self.disk.log.append_row(number, due, tick, self.now.wall_ms)
            self.replication.note_appended()
            self.settle()
