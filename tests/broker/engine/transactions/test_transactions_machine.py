"""Transactions against a plain model: a dictionary of what is staged, and a bag of what is sent.

Hypothesis drives calls, slices of the publication, restarts, checkpoints, power cuts and time in
any order. At every step the answers and counts are those of the model; in the end exactly what was
committed comes out, each row once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from delaylog.broker.engine.errors import ConflictError, GoneError, UnknownError
from delaylog.broker.engine.limits import Limits
from tests.broker.engine.host import Host
from tests.broker.engine.staging import Transactions
from tests.effort import tries
from tests.models.power_cuts import CUTS, Cut, PowerCuts
from tests.storage.fake_disk import FakeDisk

NAMES = st.sampled_from(["x", "y", "z"])
PARTS = st.integers(0, 2)
ATTEMPTS = st.integers(0, 1)
NUMBERS = st.integers(0, 1)
TTL_MS = 10_000
FRAME_SECONDS = st.sampled_from([1.0, 0.0008])
"""What a PUBLISH frame seems to take: with the second, a slice has up to three."""


@dataclass
class Known:
    """One transaction as its callers know it."""

    expires_ms: int
    state: str = "open"
    parts: dict[tuple[int, int, int], list[bytes]] = field(default_factory=dict)

    def rows(self, part: int, attempt: int) -> list[bytes]:
        found = (rows for (p, a, _), rows in self.parts.items() if (p, a) == (part, attempt))
        return [body for rows in found for body in rows]


@dataclass
class Model:
    """All of them, and what was committed."""

    known: dict[str, Known] = field(default_factory=dict)
    sent: Counter[bytes] = field(default_factory=Counter)


class TransactionMachine(PowerCuts, RuleBasedStateMachine):
    """The engine and the model side by side."""

    def __init__(self) -> None:
        super().__init__()
        limits = Limits(disk_reserve_bytes=0, reserve_file_bytes=0)
        self.host = Host(Path("data"), limits=limits, fs=FakeDisk())
        self.model = Model()
        self.number = 0

    @property
    def txn(self) -> Transactions:
        return Transactions(self.host.engine)

    def find(self, name: str) -> Known | None:
        """The transaction now: one whose time is over has expired."""
        known = self.model.known.get(name)
        if known is not None and known.state == "open" and known.expires_ms <= self.host.now_ms:
            known.state = "expired"
        return known

    @rule(name=NAMES)
    def begin(self, name: str) -> None:
        known = self.find(name)
        self.txn.begin(name, self.host.now_ms)
        if known is None:
            known = self.model.known[name] = Known(0)
        if known.state == "open":
            known.expires_ms = self.host.now_ms + TTL_MS
        self.same(name)

    @rule(
        name=NAMES,
        part=PARTS,
        attempt=ATTEMPTS,
        number=NUMBERS,
        rows=st.integers(1, 9),
        again=st.booleans(),
    )
    def stage(
        self, name: str, part: int, attempt: int, number: int, rows: int, again: bool
    ) -> None:
        known, key = self.find(name), (part, attempt, number)
        there = known.parts.get(key) if known else None
        if again and there:
            bodies = there
        else:
            self.number += 1
            bodies = [b"%d.%d" % (self.number, row) for row in range(rows)]

        def call() -> bool:
            return self.txn.stage(
                name, bodies, self.host.now_ms, part=part, attempt=attempt, number=number
            )

        if known is None:
            self.refused(UnknownError, call)
        elif known.state != "open":
            self.refused(GoneError, call)
        elif there is None:
            assert call()
            known.parts[key] = bodies
            known.expires_ms = self.host.now_ms + TTL_MS
        elif there == bodies:
            assert not call()
        else:
            self.refused(ConflictError, call)

    @rule(name=NAMES, attempts=st.tuples(ATTEMPTS, ATTEMPTS, ATTEMPTS), off=st.integers(0, 9))
    def commit(self, name: str, attempts: tuple[int, ...], off: int) -> None:
        known = self.find(name)
        rows = [[] if known is None else known.rows(p, a) for p, a in enumerate(attempts)]
        winners = [(part, attempts[part], len(rows[part])) for part in range(3)]
        if off == 0:
            winners[0] = (0, attempts[0], len(rows[0]) + 1)

        def call() -> bool:
            return self.txn.commit(name, self.host.now_ms, *winners)

        if known is None:
            self.refused(UnknownError, call)
        elif known.state == "committed":
            assert not call()
        elif known.state != "open":
            self.refused(GoneError, call)
        elif off == 0:
            self.refused(ConflictError, call)
        else:
            assert call()
            known.state = "committed"
            self.model.sent.update(body for part in rows for body in part)

    @rule(name=NAMES)
    def abort(self, name: str) -> None:
        known = self.find(name)

        def call() -> bool:
            return self.txn.abort(name, self.host.now_ms)

        if known is None:
            self.refused(UnknownError, call)
        elif known.state == "committed":
            self.refused(ConflictError, call)
        else:
            assert call() == (known.state == "open")
            known.state = "expired" if known.state == "expired" else "aborted"

    @staticmethod
    def refused(error: type[Exception], call: Any) -> None:
        try:
            call()
        except error:
            return
        raise AssertionError(f"{error.__name__} was expected")

    @precondition(lambda self: self.txn.table.unpublished)
    @rule(count=st.integers(1, 4), frame_s=FRAME_SECONDS)
    def publish(self, count: int, frame_s: float) -> None:
        self.host.sync()
        self.txn.slices(self.host.now_ms, count, frame_s)
        self.host.turn()

    @rule(ms=st.sampled_from([1, 4_000, 11_000]))
    def pass_time(self, ms: int) -> None:
        self.host.advance(ms)

    @rule()
    def retire(self) -> None:
        self.host.engine.retire_unused(self.host.now_ms)

    @rule()
    def restart(self) -> None:
        self.host.restart()

    @rule()
    def checkpoint(self) -> None:
        self.host.checkpoint()

    @rule(cut=CUTS, frame_s=FRAME_SECONDS)
    def lose_power(self, cut: Cut, frame_s: float) -> None:
        """In the middle of a publication and a checkpoint, with calls in flight."""
        engine = self.host.engine
        now_ms = self.host.now_ms

        def meddle(random: Random) -> None:
            name, attempts = random.choice("xyz"), [random.randrange(2) for _ in range(3)]
            part, attempt, number = random.randrange(3), attempts[0], random.randrange(2)
            if random.random() < 0.3:
                self.commit(name, tuple(attempts), 1)
            else:
                self.stage(name, part, attempt, number, 3, random.random() < 0.5)

        self.work_until_the_power_fails(
            cut,
            lambda: [
                self.txn.publishing(now_ms, frame_s),
                engine.upkeep.checkpoint(lambda: now_ms),
                engine.housekeeping.flush_work(),
            ],
            meddle,
        )

    def same(self, name: str) -> None:
        """What is told of one is what the model says."""
        known, found = self.find(name), self.txn.look(name)
        assert known is not None
        if hasattr(found, "expires_ms"):
            assert sum(map(len, known.parts.values())) == found.rows

    @invariant()
    def counts(self) -> None:
        """Committed rows count at once, staged ones never."""
        topic = self.host.engine.topic("t")
        living = 0 if topic is None else topic.default.counts.living
        assert living == self.model.sent.total()
        table = self.txn.table
        assert table.published_rows + table.unpublished_rows == self.model.sent.total()
        opened = [known for known in self.model.known.values() if known.state == "open"]
        if len(opened) == len(table.open):
            rows = sum(len(body) for known in opened for body in known.parts.values())
            assert table.staged_rows == rows

    def teardown(self) -> None:
        self.host.sync()
        self.txn.publish(self.host.now_ms)
        self.host.turn()
        found: Counter[bytes] = Counter()
        while got := self.host.bodies(lease=60_000_000):
            found.update(got)
        assert found == self.model.sent
        self.host.close()


def test_against_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delaylog.storage.log.physical_log.SEGMENT_BYTES_MAX", 3_000)
    monkeypatch.setattr("delaylog.broker.engine.transactions.commands.TTL_MS", TTL_MS)
    run_state_machine_as_test(
        TransactionMachine,
        settings=settings(
            max_examples=tries(40),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
