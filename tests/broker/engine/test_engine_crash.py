"""The whole engine on a disk that loses power: what the log holds is what comes back.

Purpose: no acknowledged message is lost, none is early, what was acked or canceled stays so.
Method: one small workload of every call and every kind of background work, with calls between its
slices, is cut at each file operation. The log's surviving end then says exactly which calls have
happened; a plain model replays those and a drained engine has to agree with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest

from delaylog.broker.engine.control import changing as control
from delaylog.broker.engine.control.finding import find_ids, find_origins
from delaylog.broker.engine.deliver.receiving import receive
from delaylog.broker.engine.deliver.settling import Receipts, ack, nack
from delaylog.broker.engine.deliver.taking import Asked
from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.send.sending import send
from delaylog.broker.engine.setup import Setup
from delaylog.broker.engine.topics.settings import Backoff, TopicSettings
from delaylog.storage.errors import DiskFullError
from delaylog.storage.layout import FRAME_HEADER_SIZE, HOUR_MS, MessageState
from delaylog.storage.messages.batch import MessageBatch, TextColumn, decode_send, encode_send
from delaylog.storage.work import Work
from tests.storage.fake_disk import DiskCrashed, FakeDisk, Survival

START_MS = 1_700_000_000_000
LEASE_MS = 20_000
SETTINGS = TopicSettings(
    ended_keep_ms=0, dead_keep_ms=0, backoff=Backoff(first_ms=500, max_ms=2_000, jitter=0.0)
)


@dataclass
class Message:
    """A message as its sender knows it; `events` in log order as (log end, kind, time)."""

    body: bytes
    id: str
    events: list[tuple[int, str, int]] = field(default_factory=list)

    def fate(self, end: int) -> tuple[bool, int] | None:
        """(lives, not before) after all events below `end`; None if it was never sent."""
        lives, not_before, known = True, 0, False
        for position, kind, time in self.events:
            if position > end:
                break
            known = True
            if kind in ("ack", "cancel"):
                lives = False
            else:
                not_before = time
        return (lives, not_before) if known else None


@dataclass
class Book:
    """All messages by origin, and the durable position that clients were told of."""

    messages: dict[int, Message] = field(default_factory=dict)
    durable: int = 0
    now_ms: int = START_MS


class Life:
    """An engine from its start to its crash."""

    def __init__(self, disk: FakeDisk, book: Book, seed: int) -> None:
        self.book = book
        self.random = Random(seed)
        self.engine = Engine(
            disk,
            "data",
            Setup(random=Random(seed), limits=Limits(disk_reserve_bytes=0)),
            now_ms=book.now_ms,
        )
        self.started_at = self.engine.state.log.end_position - FRAME_HEADER_SIZE
        self.leases: list[tuple[int, list[int]]] = []
        self.sent = 0

    # ------------------------------------------------------------------ calls

    @property
    def topic(self) -> Topic:
        topic = self.engine.topic("t")
        return topic or self.engine.put_topic("t", SETTINGS, self.book.now_ms)

    def send(self, delays: list[int]) -> None:
        now = self.book.now_ms
        n = len(delays)
        self.sent += 1
        ids = [f"m{self.sent}.{k}" if k % 2 else "" for k in range(n)]
        bodies = [b"body %d %d" % (self.sent, k) for k in range(n)]
        columns = {
            "n": n,
            "deliver_at_ms": np.array([now + delay for delay in delays]),
            "body_size": np.array([len(b) for b in bodies]),
            "bodies": b"".join(bodies),
            "id_size": np.array([len(i) for i in ids]),
            "id": "".join(ids).encode(),
        }
        batch: MessageBatch = decode_send(encode_send(columns), rows_max=100)
        assert isinstance(batch.body, TextColumn)
        result = send(self.engine.state, self.topic, batch, now, free_bytes=1 << 40)
        for k, ref in enumerate(result.refs.tolist()):
            message = Message(bodies[k], ids[k])
            message.events.append((result.position, "send", now + delays[k]))
            self.book.messages[ref] = message

    def receive(self, count: int) -> list[int]:
        now = self.book.now_ms
        got = receive(
            self.engine.state,
            self.topic,
            self.topic.default,
            Asked(count_max=count, now_ms=now),
            lease_ms=LEASE_MS,
        )
        if got is None:
            return []
        at = 0
        origins = got.origins.tolist()
        for row, origin in zip(got.rows, origins, strict=True):
            record = got.records[at : at + int(row["size"])]
            at += int(row["size"])
            message = self.book.messages.get(origin)
            assert message is not None, "nothing comes from nowhere"
            assert record == message.id.encode() + message.body
            assert int(row["deliver_at"]) <= now, "never early"
            message.events.append((got.position, "lease", got.lease_until_ms))
        self.leases.append((got.lease, origins))
        return origins

    def settle(self, how: str, delay_ms: int = 0) -> None:
        """Ack or nack the oldest lease."""
        if not self.leases:
            return
        lease, origins = self.leases.pop(0)
        now = self.book.now_ms
        if how == "ack":
            done = ack(self.engine.state, self.topic, Receipts(lease), now)
        else:
            done = nack(self.engine.state, self.topic, Receipts(lease), now, delay_ms=delay_ms)
        if done.done:
            for origin in origins:
                event = (done.position, how, now + delay_ms)
                self.book.messages[origin].events.append(event)

    def change(self, which: Callable[[Message], bool], new_delay_ms: int | None) -> None:
        """Cancel (or reschedule) the first message that fits and can be."""
        state, now = self.engine.state, self.book.now_ms
        for origin, message in self.book.messages.items():
            fate = message.fate(1 << 62)
            if fate is None or not fate[0] or not which(message):
                continue
            if message.id:
                found = find_ids(state, self.topic, [message.id], now)
            else:
                found = find_origins(state, np.array([origin], np.int64), self.topic, now)
            if new_delay_ms is None:
                result = control.cancel(state, self.topic, found, now)
                event = (result.position, "cancel", now)
            else:
                due = now + new_delay_ms
                result = control.reschedule(state, self.topic, found, now, deliver_at_ms=due)
                event = (result.position, "reschedule", due)
            if result.codes.tolist() == [control.DONE]:
                message.events.append(event)
                return

    # ------------------------------------------------------------------ the host

    def sync(self) -> None:
        log = self.engine.state.log
        while log.pending_size:
            # A full disk is tried again, as the host does it, until there is space.
            with contextlib.suppress(DiskFullError):
                log.write_pending()
        self.book.durable = log.sync()
        self.engine.commit(self.book.durable, self.book.now_ms)

    def turn(self) -> None:
        """Everything that is due becomes ready."""
        while True:
            more = self.engine.run_due(self.book.now_ms)
            if self.engine.dispatcher.loader.loading:
                self.run(self.engine.dispatcher.loader.load_work(), meddle=False)
            elif not more:
                return

    def run(self, work: Work, *, meddle: bool = True) -> None:
        """Background work, with calls between its slices whose frames are not durable yet."""
        for step in work:
            if callable(step):
                try:
                    step()
                except DiskFullError as error:
                    with contextlib.suppress(DiskFullError):
                        work.throw(error)
                    return
            elif step is not None:
                self.sync()
            if meddle and self.random.random() < 0.2:
                self.meddle()

    def meddle(self) -> None:
        if self.random.random() < 0.5:
            self.receive(1)
        else:
            self.send([0, 3 * HOUR_MS])

    def run_together(self, works: list[Work]) -> None:
        """Slices of several works in a random order, as the host's tasks take turns."""
        while works:
            work = self.random.choice(works)
            step = next(work, "end")
            if step == "end":
                works.remove(work)
            elif callable(step):
                step()
            elif step is not None:
                self.sync()
            if self.random.random() < 0.3:
                self.meddle()
            if self.random.random() < 0.3:
                self.sync()

    def pass_time(self, ms: int) -> None:
        self.book.now_ms += ms
        self.turn()
        self.sync()
        self.turn()

    def checkpoint(self) -> None:
        self.run(self.engine.upkeep.checkpoint(lambda: self.book.now_ms))
        self.engine.write_tick(self.book.now_ms)


def has(kind: str) -> Callable[[Message], bool]:
    return lambda message: any(event[1] == kind for event in message.events)


def work(life: Life) -> None:
    """Every kind of call and of background work, twice over, across two hours."""
    for round_number in range(2):
        life.send([0, 200, 1_500, 5_000, 2 * HOUR_MS, 2 * HOUR_MS + 5, 40 * HOUR_MS])
        life.sync()
        life.pass_time(250)
        life.receive(1)
        life.receive(1)
        life.settle("ack")
        life.sync()
        life.run(life.engine.flush_work())
        life.settle("nack", 700 * round_number)
        life.change(lambda m: m.events[0][2] > life.book.now_ms + HOUR_MS, None)
        life.change(lambda m: bool(m.id) and m.events[-1][1] == "send", 9_000)
        life.sync()
        life.engine.write_tick(life.book.now_ms)
        life.pass_time(2_000)
        life.receive(2)
        life.run(life.engine.states_work())
        life.checkpoint()
        life.settle("ack")
        life.send([10, 20])
        life.sync()
        life.change(has("reschedule"), 4 * HOUR_MS)
        life.run(life.engine.flush_work())
        life.pass_time(LEASE_MS + 5_000)
        life.receive(3)
        life.settle("ack")
        life.pass_time(2 * HOUR_MS)
        life.receive(3)
        life.sync()
        life.checkpoint()
    engine = life.engine
    for _ in range(3):
        life.meddle()
        checkpoint = engine.upkeep.checkpoint(lambda: life.book.now_ms)
        life.run_together(
            [checkpoint, engine.flush_work(), engine.states_work(), engine.flush_work()]
        )
    life.settle("ack")
    life.sync()


def drain(life: Life) -> dict[int, int]:
    """Run the clock until nothing waits; when each message was handed out, acked at once."""
    book = life.book
    seen: dict[int, int] = {}
    life.sync()
    for _ in range(400):
        life.turn()
        while origins := life.receive(50):
            for origin in origins:
                assert origin not in seen, "acked messages do not come back"
                seen[origin] = book.now_ms
            life.settle("ack")
            life.sync()
        wake = life.engine.next_wake_ms()
        if wake is None:
            return seen
        book.now_ms = max(book.now_ms, wake)
    raise AssertionError("the drain does not end")


def check(life: Life) -> None:
    """A recovered engine against the model at the log's surviving end."""
    book = life.book
    end = life.started_at
    assert end >= book.durable, "what clients were told is in the log"
    fates = {origin: message.fate(end) for origin, message in book.messages.items()}
    for origin, message in book.messages.items():
        message.events = [event for event in message.events if event[0] <= end]
        fate = fates[origin]
        if fate is not None and fate[0]:
            assert life.engine.topic("t") is not None
            if message.id:
                [found] = find_ids(life.engine.state, life.topic, [message.id])
                assert found is not None, "living messages are found by their id"
                assert found.origin == origin
                assert found.state < MessageState.ACKED or found.state is MessageState.MOVED
    seen = drain(life)
    for origin, fate in fates.items():
        lives = fate is not None and fate[0]
        assert (origin in seen) == lives, (book.messages[origin], fate, end, seen.get(origin))
        if fate is not None and lives:
            assert seen[origin] >= fate[1], "never before its time, nor while it is leased"
    if life.engine.topic("t") is not None:
        counts = life.topic.default.counts
        assert (counts.living, counts.leased) == (0, 0)
    life.engine.close()


def crashed_run(at: int, seed: int) -> tuple[FakeDisk, Book]:
    disk, book = FakeDisk(seed), Book()
    disk.crash_at = at
    with pytest.raises(DiskCrashed):
        work(Life(disk, book, seed=1))
    return disk, book


def operations() -> int:
    disk = FakeDisk()
    life = Life(disk, Book(), seed=1)
    work(life)
    life.engine.close()
    return disk.count


def lose_ids(disk: FakeDisk) -> None:
    """The next life makes the id index anew."""
    if disk.exists("data/ids"):
        disk.remove_tree("data/ids")


def crash_and_check(at: int, survival: Survival, seed: int) -> None:
    disk, book = crashed_run(at, seed)
    disk = disk.restart(survival, seed * 7_919 + at)
    book.now_ms += 5
    if at % 3 == 0:
        if at % 2 == 0:
            lose_ids(disk)
        # The power goes again while the engine recovers.
        disk.crash_at = 1 + at % 11
        try:
            life = Life(disk, book, seed=2)
        except DiskCrashed:
            disk = disk.restart("sectors", at)
        else:
            life.engine.close()
            disk.crash_at = 0
    if at % 5 == 0:
        lose_ids(disk)
    check(Life(disk, book, seed=3))


SAMPLE = 60


@pytest.mark.parametrize("survival", ["nothing", "everything", "prefix", "sectors"])
def test_crash_at_file_operations(survival: Survival) -> None:
    """Cut at a seeded sample of all file operations; the model and the drained engine agree."""
    count = operations()
    points = Random(survival).sample(range(1, count + 1), min(SAMPLE, count))
    for at in sorted(points):
        crash_and_check(at, survival, seed=at)


def test_full_disk() -> None:
    """Space runs out for a while in the middle of a drain: all is delivered once it is back."""
    for at in range(1, 80, 4):
        disk, book = FakeDisk(at), Book()
        life = Life(disk, book, seed=1)
        for delay in (0, 1_000, 60_000, 2 * HOUR_MS):
            life.send([delay + 10 * k for k in range(5)])
            life.sync()
        disk.full_at = range(disk.count + at, disk.count + at + 3)
        seen = drain(life)
        assert set(seen) == set(book.messages)
        life.engine.close()


def test_no_crash() -> None:
    """The same workload, closed cleanly: the model holds, so the test above means something."""
    disk, book = FakeDisk(), Book()
    life = Life(disk, book, seed=1)
    work(life)
    kinds = {event[1] for message in book.messages.values() for event in message.events}
    assert kinds == {"send", "lease", "ack", "nack", "cancel", "reschedule"}
    assert life.engine.upkeep.checkpoints == 7
    life.engine.close()
    check(Life(disk, book, seed=3))
