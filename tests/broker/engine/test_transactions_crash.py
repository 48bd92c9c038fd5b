"""Transactions on a disk that loses power at any file operation: all of one, or nothing.

Three transactions are staged beside sends and background work, one is committed early, one late,
one aborted, and their publication is under way when the disk crashes. The recovered engine
publishes what was decided. Then every acknowledged commit is there whole, each row once; what was
not committed is there whole or not at all; and an acknowledged part is still known.
"""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import pytest

from delaylog.broker.engine.deliver.receiving import receive
from delaylog.broker.engine.deliver.taking import Asked
from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.errors import EngineError, UnknownError
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.send.sending import send
from delaylog.broker.engine.setup import Setup
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.broker.engine.transactions import publishing
from delaylog.storage.layout import HOUR_MS
from delaylog.storage.work import Work
from tests.broker.engine.crash_points import SAMPLE, Workload
from tests.broker.engine.staging import Transactions, batch_of
from tests.storage.fake_disk import SURVIVALS, FakeDisk, Survival

START_MS = 1_700_000_000_000
NAMES = ("early", "late", "aborted")
PARTS, ROWS = 3, 11


class Told:
    """What was acknowledged."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.staged: set[tuple[str, int]] = set()
        self.decided: dict[str, str] = {}
        self.asked: set[str] = set()


class Life:
    """An engine on a fake disk."""

    def __init__(self, disk: FakeDisk, told: Told) -> None:
        self.told = told
        self.random = Random(5)
        limits = Limits(disk_reserve_bytes=0, segment_bytes_max=2_000)
        self.engine = Engine(
            disk,
            "data",
            Setup(random=Random(5), limits=limits),
            now_ms=told.now_ms,
        )
        self.calls = Transactions(self.engine)

    def sync(self) -> None:
        log = self.engine.state.log
        log.write_pending()
        self.engine.commit(log.sync(), self.told.now_ms)

    def stage(self, name: str, part: int, attempt: int = 0) -> None:
        bodies = [f"{name} {part} {row}".encode() for row in range(ROWS)]
        ids = [body.decode() for body in bodies] if part == 1 else None
        members = {} if ids is None else {"id": ids}
        self.calls.stage(name, bodies, self.told.now_ms, part=part, attempt=attempt, **members)

    def commit(self, name: str) -> None:
        self.told.asked.add(name)
        winners = [(part, 0, ROWS) for part in range(PARTS)]
        self.calls.commit(name, self.told.now_ms, *winners)
        self.sync()
        self.told.decided[name] = "committed"

    def other(self) -> None:
        """A send of somebody else."""
        state, now_ms = self.engine.state, self.told.now_ms
        topic = self.engine.topic("u") or self.engine.put_topic("u", TopicSettings(), now_ms)
        send(state, topic, batch_of([b"x" * 90], delay_ms=HOUR_MS), now_ms, free_bytes=1 << 40)

    def mixed(self, *works: Work) -> None:
        """Works of the background, slice by slice in any order, with sends between them."""
        left = list(works)
        while left:
            one = self.random.choice(left)
            step = next(one, "end")
            if step == "end":
                left.remove(one)
            elif callable(step):
                step()
            elif step is not None:
                self.sync()
            if self.random.random() < 0.2:
                self.other()

    def publishing(self) -> Work:
        return self.calls.publishing(self.told.now_ms)

    def checkpoint(self) -> Work:
        return self.engine.upkeep.checkpoint(lambda: self.told.now_ms)


def work(life: Life) -> None:
    """All there is to transactions, beside a checkpoint at any moment."""
    told = life.told
    for name in NAMES:
        life.calls.begin(name, told.now_ms)
    for part, name in itertools.product(range(PARTS), NAMES):
        life.stage(name, part)
        life.sync()
        told.staged.add((name, part))
        if (part, name) == (1, "late"):
            life.mixed(life.checkpoint())
    life.stage("early", 0, attempt=1)
    life.commit("early")
    life.mixed(life.publishing(), life.engine.flush_work(), life.checkpoint())
    life.calls.abort("aborted", told.now_ms)
    life.sync()
    told.decided["aborted"] = "aborted"
    life.commit("late")
    life.mixed(life.checkpoint(), life.publishing())
    life.mixed(life.checkpoint())


def check(life: Life) -> None:
    """After the crash: what was decided is published, and nothing else is there."""
    told, calls = life.told, life.calls
    life.sync()
    for name in NAMES:
        try:
            known = calls.look(name)
        except UnknownError:
            assert not any(who == name for who, _ in told.staged)
            continue
        if name in told.decided:
            assert not hasattr(known, "expires_ms"), "a decision stands"
            continue
        for part in range(PARTS):
            if hasattr(known, "expires_ms"):
                there = known.parts.find("", part, 0, 0)
                assert there is not None or (name, part) not in told.staged
    life.mixed(life.publishing())
    life.sync()
    seen = Counter(drained(life))
    for name in NAMES:
        mine = {f"{name} {part} {row}".encode(): 1 for part in range(PARTS) for row in range(ROWS)}
        found = {body: n for body, n in seen.items() if body.startswith(name.encode())}
        if told.decided.get(name) == "committed":
            assert found == mine, "every row of a commit, once"
        else:
            assert found in ({}, mine), "all of it, or nothing"
            assert not found or name in told.asked
    again = [name for name in NAMES if told.decided.get(name) == "committed"]
    for name in again:
        assert not calls.commit(name, told.now_ms), "a repeat says that it was"
    with pytest.raises(EngineError):
        life.stage("early", 0, attempt=7) if again else calls.look("nobody")
    life.engine.close()


def drained(life: Life) -> list[bytes]:
    """Everything that can be received of the topic."""
    state, now_ms = life.engine.state, life.told.now_ms
    loader = life.engine.dispatcher.loader
    while life.engine.run_due(now_ms) or loader.loading:
        life.mixed(loader.load_work())
        life.sync()
    out: list[bytes] = []
    topic = life.engine.topic("t")
    while topic is not None:
        got = receive(
            state, topic, topic.default, Asked(count_max=1_000, now_ms=now_ms), lease_ms=60_000
        )
        if got is None:
            break
        at = 0
        for row in got.rows:
            record = got.records[at : at + int(row["size"])]
            at += len(record)
            out.append(record[int(row["id_size"]) :])
    return out


WORKLOAD = Workload(Told, Life, work, check)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "SLICE_ROWS_MIN", 4)
    monkeypatch.setattr(publishing, "SLICE_ROWS_FIRST", 4)


def test_no_crash() -> None:
    """The same workload without a crash, so that the others mean something."""
    disk, told = FakeDisk(), Told()
    life = Life(disk, told)
    work(life)
    assert told.decided == {"early": "committed", "late": "committed", "aborted": "aborted"}
    assert life.calls.table.published_rows == 2 * PARTS * ROWS
    life.engine.close()
    check(Life(disk, told))


@pytest.mark.parametrize("survival", SURVIVALS)
def test_crash_at_file_operations(survival: Survival) -> None:
    """Cut at a seeded sample of all file operations."""
    at = WORKLOAD.sample(survival)
    cuts = WORKLOAD.crash_at(at, lambda _: survival)
    committed = sum(len(told.decided) for told in cuts)
    assert committed > SAMPLE // 2, "many were cut behind a decision"


@pytest.mark.drill
def test_crash_at_every_file_operation() -> None:
    """The same without a sample."""
    at = WORKLOAD.operations()
    cuts = WORKLOAD.crash_at(at, lambda cut: SURVIVALS[cut % len(SURVIVALS)])
    assert sum(1 for _ in cuts) == len(at)
