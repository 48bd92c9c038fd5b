"""Claims against a plain model, with restarts, crashes and checkpoints in between.

Slices are three messages, so that every claim has several.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from delaylog.broker.engine.deliver import claims as claims_module
from delaylog.broker.engine.deliver.claims import (
    claim_rows,
    extend_claim,
)
from delaylog.broker.engine.errors import (
    ConflictError,
    GoneError,
)
from delaylog.broker.engine.topics.settings import Backoff
from tests.broker.engine.claim_calls import begin, find, make, settle
from tests.effort import tries


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "SLICE_ROWS", 3)


NAMES = st.sampled_from(["a", "b", "c"])


class Machine(RuleBasedStateMachine):
    """Messages are ready, held by a claim, held by a lease or acked: a dictionary knows which."""

    make_host: Callable[[], Any]

    @initialize()
    def begin(self) -> None:
        self.host = type(self).make_host()
        self.host.configure(backoff=Backoff(first_ms=0), max_retry=60_000)
        self.place: dict[int, str] = {}
        """Origin: ready, acked, or the name of what holds it."""
        self.claims: dict[str, tuple[list[int], int]] = {}
        """Of open ones: origins in order, and when they end."""
        self.ended: dict[str, str] = {}

    def teardown(self) -> None:
        if hasattr(self, "host"):
            self.host.close()

    def expire(self) -> None:
        for name, (origins, deadline) in list(self.claims.items()):
            if deadline <= self.host.now_ms:
                for origin in origins:
                    if self.place[origin] == name:
                        self.place[origin] = "ready"
                del self.claims[name]
                if origins:
                    self.ended[name] = "expired"

    @rule(n=st.integers(1, 8))
    def send(self, n: int) -> None:
        refs = self.host.send(n).refs
        self.place.update(dict.fromkeys(refs.tolist(), "ready"))

    @rule(name=NAMES, count=st.integers(1, 12), lease=st.sampled_from([1_000, 50_000]))
    def make(self, name: str, count: int, lease: int) -> None:
        if name in self.ended:
            with pytest.raises(GoneError) as gone:
                begin(self.host, name, count, lease=lease)
            assert gone.value.facts == {"state": self.ended[name]}
            return
        claim = make(self.host, name, count, lease=lease)
        origins = claim_rows(self.host.engine.state, claim, 0, count + 100).origins.tolist()
        if name in self.claims:
            assert origins == self.claims[name][0]
            return
        ready = [origin for origin, place in self.place.items() if place == "ready"]
        assert len(origins) == len(set(origins)) == min(count, len(ready))
        assert set(origins) <= set(ready)
        self.claims[name] = (origins, self.host.now_ms + lease)
        self.place.update(dict.fromkeys(origins, name))

    @rule(name=NAMES, start=st.integers(0, 6), stop=st.integers(0, 12))
    @precondition(lambda self: self.claims)
    def read(self, name: str, start: int, stop: int) -> None:
        if name in self.claims:
            got = claim_rows(self.host.engine.state, find(self.host, name), start, stop)
            assert got.origins.tolist() == self.claims[name][0][start:stop]

    @rule(name=NAMES, lease=st.sampled_from([500, 40_000]))
    def extend(self, name: str, lease: int) -> None:
        if name in self.claims:
            extend_claim(self.host.engine.state, find(self.host, name), lease, self.host.now_ms)
            self.claims[name] = (self.claims[name][0], self.host.now_ms + lease)

    @rule(name=NAMES, how=st.sampled_from(["acking", "releasing"]))
    def settle(self, name: str, how: str) -> None:
        ended = {"acking": "acked", "releasing": "released"}[how]
        if name in self.claims:
            assert settle(self.host, find(self.host, name), how)
            origins, _ = self.claims.pop(name)
            for origin in origins:
                if self.place[origin] == name:
                    self.place[origin] = "acked" if how == "acking" else "ready"
            self.ended[name] = ended
        elif self.ended.get(name) == ended:
            assert not settle(self.host, find(self.host, name), how)
        elif name in self.ended:
            with pytest.raises((GoneError, ConflictError)):
                settle(self.host, find(self.host, name), how)

    @rule(count=st.integers(1, 5))
    def receive(self, count: int) -> None:
        messages = self.host.receive(count)
        ready = {origin for origin, place in self.place.items() if place == "ready"}
        assert {message.origin for message in messages} <= ready
        assert len(messages) == min(count, len(ready))
        self.host.ack(messages)
        self.place.update(dict.fromkeys((message.origin for message in messages), "acked"))

    @rule(ms=st.sampled_from([100, 1_000, 20_000, 60_000]))
    def advance(self, ms: int) -> None:
        self.host.advance(ms)
        # Leases end up to a bucket later than their claim.
        self.host.advance(50)
        self.expire()

    @rule(how=st.sampled_from(["restart", "checkpoint", "flush"]))
    def upkeep(self, how: str) -> None:
        getattr(self.host, how)()
        self.expire()

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "host"):
            counts = self.host.topic.default.counts
            places = list(self.place.values())
            held = sum(place not in ("ready", "acked") for place in places)
            assert (counts.leased, counts.acked) == (held, places.count("acked"))
            assert counts.living == len(places) - counts.acked
            assert len(self.host.engine.state.claims) == len(self.claims)


def test_against_a_model(tmp_path: Any, host_class: Any) -> None:
    """Any order of calls, with restarts."""
    made = iter(range(10**9))

    class Here(Machine):
        make_host = staticmethod(lambda: host_class(tmp_path / str(next(made))))

    Here.TestCase.settings = settings(max_examples=tries(60), stateful_step_count=30, deadline=None)
    case = Here.TestCase()
    case.runTest()
