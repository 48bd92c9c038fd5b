"""Claims on a disk that loses power at any file operation: what was answered holds.

Claims are made, extended and settled beside sends and background work until the disk crashes. The
recovered engine knows every claim that somebody was told of, with the same messages in the same
order, and finishes what was decided; no message is held twice.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from delaylog.broker.engine.deliver import claims as claims_module
from delaylog.broker.engine.deliver.claim_table import Claim
from delaylog.broker.engine.deliver.claims import (
    begin_claim,
    claim_rows,
    decide,
    extend_claim,
    find_claim,
    make_work,
    settle_left_over,
    settle_work,
)
from delaylog.broker.engine.deliver.taking import Asked
from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.send.sending import send
from delaylog.broker.engine.setup import Setup
from delaylog.broker.engine.topics.settings import Backoff, TopicSettings
from delaylog.storage.messages.batch import decode_send, encode_send
from delaylog.storage.work import Work
from tests.broker.engine.crash_points import SAMPLE, Workload
from tests.storage.fake_disk import FakeDisk, Survival

START_MS = 1_700_000_000_000
LEASE_MS = 3_600_000
SETTINGS = TopicSettings(backoff=Backoff(first_ms=0))


class Told:
    """What clients were told."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.sent = 0
        self.claims: dict[str, list[int]] = {}
        self.settled: dict[str, str] = {}
        self.asked: set[str] = set()
        """Claims of which the settling was asked for, answered or not."""


class Life:
    """An engine on a fake disk."""

    def __init__(self, disk: FakeDisk, told: Told) -> None:
        self.told, self.random = told, Random(5)
        self.engine = Engine(
            disk,
            "data",
            Setup(random=Random(5), limits=Limits(disk_reserve_bytes=0)),
            now_ms=told.now_ms,
        )
        self.state = self.engine.state

    def clock(self) -> int:
        return self.told.now_ms

    def sync(self) -> None:
        self.state.log.write_pending()
        self.engine.commit(self.state.log.sync(), self.told.now_ms)

    def turn(self) -> None:
        """What is due is ready."""
        self.sync()
        while self.engine.run_due(self.told.now_ms) or self.engine.dispatcher.loader.loading:
            self.drive(self.engine.dispatcher.loader.load_work())

    def drive(self, *works: Work) -> None:
        """Run works to their ends, a step of one or another at a time."""
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

    def send(self, n: int) -> None:
        columns = {"n": n, "delay_ms": 0, "body_size": 4, "bodies": b"body" * n}
        topic = self.engine.topic("t") or self.engine.put_topic("t", SETTINGS, self.told.now_ms)
        batch = decode_send(encode_send(columns), rows_max=1_000)
        send(self.state, topic, batch, self.told.now_ms, free_bytes=1 << 40)
        self.turn()
        self.told.sent += n

    def claim(self, name: str) -> Claim | None:
        topic = self.engine.topic("t")
        return find_claim(self.state, topic, topic.default, name)

    def begin(self, name: str, count: int) -> Claim:
        topic = self.engine.topic("t")
        return begin_claim(
            self.state,
            topic,
            topic.default,
            name,
            Asked(count_max=count, now_ms=self.told.now_ms),
            lease_ms=LEASE_MS,
        )

    def origins(self, claim: Claim) -> list[int]:
        origins: np.ndarray = claim_rows(self.state, claim, 0, 10**9).origins
        return origins.tolist()


def work(life: Life) -> None:
    """Four claims: one stays open, one is acked, one released, one acked slice by slice."""
    told, state = life.told, life.state
    life.send(40)
    checkpoint: Callable[[], Work] = lambda: life.engine.upkeep.checkpoint(life.clock)  # noqa: E731
    for name in ("open", "acked", "released", "late"):
        claim = life.begin(name, 8)
        works = [make_work(state, claim, life.clock)]
        if name == "acked":
            works.append(checkpoint())
        life.drive(*works)
        life.sync()
        told.claims[name] = life.origins(claim)
        told.now_ms += 10
    extend_claim(state, life.claim("open"), 2 * LEASE_MS, told.now_ms)
    life.send(5)
    for name, how in (("acked", "acking"), ("released", "releasing"), ("late", "acking")):
        claim = life.claim(name)
        told.asked.add(name)
        decide(state, claim, how, told.now_ms)
        works = [settle_work(state, claim, life.clock), life.engine.flush_work()]
        if name == "released":
            works.append(checkpoint())
        life.drive(*works)
        life.sync()
        told.settled[name] = claim.state
        life.turn()
    life.drive(life.engine.states_work())
    life.drive(checkpoint())


def check(life: Life) -> None:
    """After the crash: everything that was told is so, whatever the disk had in flight."""
    told, state = life.told, life.state
    if life.engine.topic("t") is None:
        assert told.sent == 0
        life.engine.close()
        return
    life.turn()
    life.drive(settle_left_over(state, life.clock))
    life.sync()
    for name, origins in told.claims.items():
        claim = life.claim(name)
        assert claim is not None, "somebody was told of it"
        if name in told.settled:
            assert claim.state == told.settled[name]
        elif claim.state == "open":
            assert life.origins(claim) == origins
            assert life.begin(name, 8) is claim
        else:
            assert name in told.asked
            assert claim.state in ("acked", "released")
    acked = sum(life.claim(name).state == "acked" for name in told.claims)
    counts = life.engine.topic("t").default.counts
    assert counts.acked == 8 * acked
    # Whatever was half made goes on, and everything that is free is handed out once.
    for name in ("open", "acked", "released", "late"):
        claim = life.claim(name)
        if claim is not None and claim.state == "making":
            life.drive(make_work(state, claim, life.clock))
    rest = life.begin("rest", 1_000)
    life.turn()
    life.drive(make_work(state, rest, life.clock))
    held = [o for c in state.claims.living() for o in life.origins(c)]
    assert len(held) == len(set(held)) == counts.leased
    assert len(held) == counts.living >= told.sent - counts.acked
    life.engine.close()


WORKLOAD = Workload(Told, Life, work, check)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "SLICE_ROWS", 3)
    monkeypatch.setattr(claims_module, "AHEAD_SLICES", 2)


def test_no_crash() -> None:
    """The same workload without a crash, so that the others mean something."""
    disk, told = FakeDisk(), Told()
    life = Life(disk, told)
    work(life)
    assert told.settled == {"acked": "acked", "released": "released", "late": "acked"}
    life.engine.close()
    check(Life(disk, told))


@pytest.mark.parametrize("survival", ["nothing", "everything", "prefix", "sectors"])
def test_crash_at_file_operations(survival: Survival) -> None:
    """Cut at a seeded sample of all file operations."""
    at = WORKLOAD.sample(survival)
    cuts = WORKLOAD.crash_at(at, lambda _: survival)
    held = sum(len(told.claims) for told in cuts)
    assert held > SAMPLE, "many were cut while claims were held"
