"""Jobs on a disk that loses power at any file operation: acknowledged ones end, and end right.

Three jobs run beside sends, receives and background work, until the disk crashes. The recovered
engine lets the jobs go on to their end. Then every message that was durable when a job was
acknowledged, and that the job meant, has been changed by it exactly as the job says.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from delaylog.broker.engine.control import jobs as jobs_module
from delaylog.broker.engine.control.finding import find_origins
from delaylog.broker.engine.control.job_filter import Filter
from delaylog.broker.engine.control.job_table import Order
from delaylog.broker.engine.control.jobs import begin_job
from delaylog.broker.engine.deliver.receiving import receive
from delaylog.broker.engine.deliver.settling import Receipts, nack
from delaylog.broker.engine.deliver.taking import Asked
from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.send.sending import send
from delaylog.broker.engine.setup import Setup
from delaylog.broker.engine.topics.settings import Backoff, TopicSettings
from delaylog.storage.layout import HOUR_MS, MessageState
from delaylog.storage.messages.batch import decode_send, encode_send
from delaylog.storage.work import Work
from tests.broker.engine.crash_points import SAMPLE, Workload
from tests.storage.fake_disk import FakeDisk, Survival

START_MS = 1_700_000_000_000
SETTINGS = TopicSettings(max_retry=0, backoff=Backoff(first_ms=0))
NEW_MS = START_MS + 50 * HOUR_MS


class Life:
    """An engine on a fake disk, and what its clients were told."""

    def __init__(self, disk: FakeDisk, told: Told) -> None:
        self.told = told
        self.random = Random(5)
        limits = Limits(disk_reserve_bytes=0)
        self.engine = Engine(
            disk,
            "data",
            Setup(random=Random(5), limits=limits),
            now_ms=told.now_ms,
        )

    def sync(self) -> None:
        log = self.engine.state.log
        log.write_pending()
        self.engine.commit(log.sync(), self.told.now_ms)

    def send(self, tag: bytes, n: int, delay_ms: int) -> np.ndarray:
        """Messages of one tag, durable when this returns."""
        columns = {
            "n": n,
            "delay_ms": np.arange(n) * 1_000 + delay_ms,
            "body_size": 4,
            "bodies": b"body" * n,
            "tags_size": len(tag),
            "tags": tag * n,
        }
        state, now_ms = self.engine.state, self.told.now_ms
        topic = self.engine.topic("t") or self.engine.put_topic("t", SETTINGS, now_ms)
        batch = decode_send(encode_send(columns), rows_max=1_000)
        return send(state, topic, batch, now_ms, free_bytes=1 << 40).refs

    def run(self, work: Work, *, meddle: bool = True) -> None:
        for step in work:
            if callable(step):
                step()
            elif step is not None:
                self.sync()
            if meddle and self.random.random() < 0.1:
                self.send(b"later", 3, HOUR_MS)

    def jobs(self) -> Work:
        return self.engine.jobs.work(lambda: self.told.now_ms)

    def states(self, refs: np.ndarray) -> np.ndarray:
        topic = self.engine.topic("t")
        found = find_origins(self.engine.state, refs, topic, self.told.now_ms)
        assert found.known.all()
        return found.states


class Told:
    """What was acknowledged: messages by tag, and jobs by tag."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.refs: dict[bytes, np.ndarray] = {}
        self.jobs: dict[bytes, int] = {}


ACTIONS = {b"go": "cancel", b"move": "reschedule", b"dead": "replay"}


def work(life: Life) -> None:
    """Messages, three jobs, and every kind of background work."""
    state, told = life.engine.state, life.told
    for tag, delay_ms in ((b"go", HOUR_MS), (b"move", 2 * HOUR_MS), (b"dead", 0)):
        refs = life.send(tag, 40, delay_ms)
        life.sync()
        told.refs[tag] = refs
    told.now_ms += 60_000
    while life.engine.run_due(told.now_ms) or life.engine.dispatcher.loader.loading:
        life.run(life.engine.dispatcher.loader.load_work(), meddle=False)
    topic = life.engine.topic("t")
    got = receive(
        state, topic, topic.default, Asked(count_max=100, now_ms=told.now_ms), lease_ms=60_000
    )
    nack(state, topic, Receipts(got.lease), told.now_ms, delay_ms=0)
    life.sync()
    life.run(life.engine.upkeep.checkpoint(lambda: told.now_ms))
    for tag, action in ACTIONS.items():
        at = NEW_MS if action != "cancel" else None
        job = begin_job(state, topic, Order(action, Filter(tag=tag), deliver_at_ms=at), told.now_ms)
        life.sync()
        told.jobs[tag] = job.number
    works = [life.jobs(), life.engine.flush_work()]
    works.append(life.engine.upkeep.checkpoint(lambda: told.now_ms))
    while works:
        one = life.random.choice(works)
        step = next(one, "end")
        if step == "end":
            works.remove(one)
        elif callable(step):
            step()
        elif step is not None:
            life.sync()
    life.sync()
    life.run(life.engine.states_work())
    life.run(life.engine.upkeep.checkpoint(lambda: told.now_ms))


def check(life: Life) -> None:
    """After the crash: the jobs end, and what they say is so."""
    told, state = life.told, life.engine.state
    life.sync()
    life.run(life.jobs(), meddle=False)
    life.sync()
    for tag, number in told.jobs.items():
        job = state.jobs.by_number[number]
        assert job.state == "done", "an acknowledged job goes on"
        refs = told.refs[tag]
        assert job.done <= job.matched
        slack = jobs_module.SLICE_MESSAGES
        assert 40 - slack <= job.done <= 40 + slack, "a slice may be counted twice or not at all"
        topic = life.engine.topic("t")
        found = find_origins(state, refs, topic, told.now_ms)
        assert found.known.all()
        if tag == b"go":
            assert (found.states == MessageState.DELETED).all()
        else:
            assert (found.states == MessageState.WAITING).all()
            assert (found.rows["deliver_at"] == NEW_MS).all()
            assert (found.entries["attempts"] == 0).all()
    if len(told.jobs) == 3:
        counts = life.engine.topic("t").default.counts
        assert (counts.deleted, counts.dead, counts.leased) == (40, 0, 0)
    life.engine.close()


WORKLOAD = Workload(Told, Life, work, check)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "SLICE_MESSAGES", 7)
    monkeypatch.setattr(jobs_module, "RANGE_ROWS", 16)


def test_no_crash() -> None:
    """The same workload without a crash, so that the others mean something."""
    disk, told = FakeDisk(), Told()
    life = Life(disk, told)
    work(life)
    assert all(life.engine.state.jobs.by_number[n].done == 40 for n in told.jobs.values())
    life.engine.close()
    check(Life(disk, told))


@pytest.mark.parametrize("survival", ["nothing", "everything", "prefix", "sectors"])
def test_crash_at_file_operations(survival: Survival) -> None:
    """Cut at a seeded sample of all file operations."""
    at = WORKLOAD.sample(survival)
    cuts = WORKLOAD.crash_at(at, lambda _: survival)
    begun = sum(len(told.jobs) for told in cuts)
    assert begun > SAMPLE, "many were cut while jobs ran"
