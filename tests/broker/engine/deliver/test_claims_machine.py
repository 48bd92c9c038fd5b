"""Claims against a plain model, with restarts, checkpoints and power cuts in between.

Slices are three messages, so that every claim has several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from delaylog.broker.engine.deliver import claims as claims_module
from delaylog.broker.engine.deliver.claims import (
    claim_rows,
    decide,
    extend_claim,
    make_work,
    settle_left_over,
    settle_work,
)
from delaylog.broker.engine.errors import ConflictError, GoneError
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.topics.settings import Backoff
from delaylog.storage.work import Work
from tests.broker.engine.claim_calls import begin, find, make, settle
from tests.broker.engine.host import Host
from tests.effort import tries
from tests.models.power_cuts import CUTS, Cut, PowerCuts
from tests.storage.fake_disk import FakeDisk

NAMES = st.sampled_from(["a", "b", "c"])


@dataclass
class Model:
    """Messages are ready, held by a claim, or acked."""

    place: dict[int, str] = field(default_factory=dict)
    """By origin: ready, acked, or the name of what holds it."""
    claims: dict[str, tuple[list[int], int]] = field(default_factory=dict)
    """Of open ones: origins in order, and when they end."""
    ended: dict[str, str] = field(default_factory=dict)


class Machine(PowerCuts, RuleBasedStateMachine):
    """An engine on a fake disk, and the model."""

    def __init__(self) -> None:
        super().__init__()
        limits = Limits(disk_reserve_bytes=0, reserve_file_bytes=0)
        self.host = Host(Path("data"), limits=limits, fs=FakeDisk())
        self.host.configure(backoff=Backoff(first_ms=0), max_retry=60_000)
        self.model = Model()

    def teardown(self) -> None:
        self.host.close()

    def lose_power(self, cut: Cut, work: Callable[[], Work]) -> None:
        engine = self.host.engine
        upkeep = engine.upkeep.checkpoint
        works = lambda: [work(), upkeep(self.clock), engine.housekeeping.flush_work()]  # noqa: E731
        self.work_until_the_power_fails(cut, works)

    def clock(self) -> int:
        return self.host.now_ms

    def expire(self) -> None:
        model = self.model
        for name, (origins, deadline) in list(model.claims.items()):
            if deadline <= self.host.now_ms:
                for origin in origins:
                    if model.place[origin] == name:
                        model.place[origin] = "ready"
                del model.claims[name]
                if origins:
                    model.ended[name] = "expired"

    @rule(n=st.integers(1, 8))
    def send(self, n: int) -> None:
        refs = self.host.send(n).refs
        self.model.place.update(dict.fromkeys(refs.tolist(), "ready"))

    @rule(
        name=NAMES,
        count=st.integers(1, 12),
        lease=st.sampled_from([1_000, 50_000]),
        cut=st.none() | CUTS,
    )
    def make(self, name: str, count: int, lease: int, cut: Cut | None) -> None:
        """With a cut it is begun, and goes on after the start with what it has."""
        host = self.host
        if name in self.model.ended:
            with pytest.raises(GoneError) as gone:
                begin(host, name, count, lease=lease)
            assert gone.value.facts == {"state": self.model.ended[name]}
            return
        if cut is not None:
            claim = begin(host, name, count, lease=lease)
            self.lose_power(cut, lambda: make_work(host.engine.state, claim, self.clock))
        claim = make(host, name, count, lease=lease)
        origins = claim_rows(host.engine.state, claim, 0, count + 100).origins.tolist()
        model = self.model
        if name in model.claims:
            assert origins == model.claims[name][0]
            return
        ready = [origin for origin, place in model.place.items() if place == "ready"]
        assert len(origins) == len(set(origins)) == min(count, len(ready))
        assert set(origins) <= set(ready)
        model.claims[name] = (origins, claim.deadline_ms)
        assert claim.deadline_ms >= host.now_ms + lease
        model.place.update(dict.fromkeys(origins, name))

    @rule(name=NAMES, start=st.integers(0, 6), stop=st.integers(0, 12))
    @precondition(lambda self: self.model.claims)
    def read(self, name: str, start: int, stop: int) -> None:
        if name in self.model.claims:
            got = claim_rows(self.host.engine.state, find(self.host, name), start, stop)
            assert got.origins.tolist() == self.model.claims[name][0][start:stop]

    @rule(name=NAMES, lease=st.sampled_from([500, 40_000]))
    def extend(self, name: str, lease: int) -> None:
        if name in self.model.claims:
            extend_claim(self.host.engine.state, find(self.host, name), lease, self.host.now_ms)
            self.model.claims[name] = (self.model.claims[name][0], self.host.now_ms + lease)

    @rule(name=NAMES, how=st.sampled_from(["acking", "releasing"]), cut=st.none() | CUTS)
    def settle(self, name: str, how: str, cut: Cut | None) -> None:
        """With a cut it is decided, and what was left of it is settled after the start."""
        ended = {"acking": "acked", "releasing": "released"}[how]
        host = self.host
        if name in self.model.claims:
            if cut is None:
                assert settle(host, find(host, name), how)
            else:
                claim = find(host, name)
                assert decide(host.engine.state, claim, how, host.now_ms)
                self.lose_power(cut, lambda: settle_work(host.engine.state, claim, self.clock))
                host.engine.run_inline(settle_left_over(host.engine.state, self.clock))
                host.turn()
                assert find(host, name).state == ended
            model = self.model
            origins, _ = model.claims.pop(name)
            for origin in origins:
                if model.place[origin] == name:
                    model.place[origin] = "acked" if how == "acking" else "ready"
            model.ended[name] = ended
        elif self.model.ended.get(name) == ended:
            assert not settle(host, find(host, name), how)
        elif name in self.model.ended:
            with pytest.raises((GoneError, ConflictError)):
                settle(host, find(host, name), how)

    @rule(count=st.integers(1, 5))
    def receive(self, count: int) -> None:
        messages = self.host.receive(count)
        ready = {origin for origin, place in self.model.place.items() if place == "ready"}
        assert {message.origin for message in messages} <= ready
        assert len(messages) == min(count, len(ready))
        self.host.ack(messages)
        self.model.place.update(dict.fromkeys((message.origin for message in messages), "acked"))

    @rule(ms=st.sampled_from([100, 1_000, 20_000, 60_000]))
    def advance(self, ms: int) -> None:
        self.host.advance(ms)
        # Leases end up to a bucket later than their claim.
        self.host.advance(50)
        self.expire()

    @rule(ms=st.sampled_from([1_000, 3_600_000]))
    def jump_ahead(self, ms: int) -> None:
        """What is left of a claim stays."""
        self.host.jump_ahead(ms)
        claims = self.model.claims
        claims.update({name: (held, end + ms) for name, (held, end) in claims.items()})

    @rule(how=st.sampled_from(["restart", "checkpoint", "flush"]))
    def upkeep(self, how: str) -> None:
        getattr(self.host, how)()
        self.expire()

    @invariant()
    def counts(self) -> None:
        counts, places = self.host.topic.default.counts, list(self.model.place.values())
        held = sum(place not in ("ready", "acked") for place in places)
        assert (counts.leased, counts.acked) == (held, places.count("acked"))
        assert counts.living == len(places) - counts.acked
        assert len(self.host.engine.state.claims) == len(self.model.claims)


def test_against_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any order of calls, with restarts and power cuts."""
    monkeypatch.setattr(claims_module, "SLICE_ROWS", 3)
    monkeypatch.setattr(claims_module, "AHEAD_SLICES", 2)
    run_state_machine_as_test(
        Machine,
        settings=settings(max_examples=tries(60), stateful_step_count=30, deadline=None),
    )
