"""An embedded broker under a manual clock against a queue in plain Python, any calls in any order.

What can be received, and when, is compared after every step; so are restarts in between.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from delaylog.broker.embedded import EmbeddedBroker, ManualClock, open_broker
from delaylog.client import Message, errors
from tests.effort import tries

LEASE_MS = 10_000
BACKOFF_MS = 5_000
BUCKET_MS = 50
"""Leases end at multiples of this."""
MAX_RETRY = 2
DELAYS = st.sampled_from([0, 1, 999, 10_000, 3_600_000, 86_400_000 * 3 + 7])


@dataclass
class Expected:
    """One living message as the model has it."""

    due_ms: int
    attempts: int = 0
    until_ms: int | None = None
    """When its lease ends; None while it waits or is ready."""
    delivery: Message | None = None


class Machine(RuleBasedStateMachine):
    """Sends, receives, settles, changes, time and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.living: dict[str, Expected] = {}
        self.dead: set[str] = set()
        self.sent = 0

    @initialize()
    def begin(self) -> None:
        self.open()
        self.broker.put_topic(
            "t",
            {
                "max_retry": MAX_RETRY,
                "lease_ms": LEASE_MS,
                "backoff": {"first_ms": BACKOFF_MS, "factor": 1, "jitter": 0},
            },
        )

    def open(self) -> None:
        self.broker: EmbeddedBroker[ManualClock] = open_broker(
            self.folder, clock=ManualClock(), fsync="never"
        )

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.broker.close()
        shutil.rmtree(self.folder)

    @property
    def now_ms(self) -> int:
        return self.broker.clock.now_ms()

    def back(self, name: str, at_ms: int) -> None:
        """A consumer did not finish it."""
        view = self.living[name]
        view.until_ms, view.delivery = None, None
        if view.attempts > MAX_RETRY:
            del self.living[name]
            self.dead.add(name)
        else:
            view.due_ms = at_ms + BACKOFF_MS

    # ------------------------------------------------------------------ calls

    @rule(delays=st.lists(DELAYS, min_size=1, max_size=4))
    def send(self, delays: list[int]) -> None:
        for delay in delays:
            self.sent += 1
            name = f"m{self.sent}"
            sent = self.broker.send("t", name, id=name, delay_ms=delay)
            assert sent.deliver_at_ms == self.now_ms + delay
            self.living[name] = Expected(sent.deliver_at_ms)

    @rule(count=st.integers(1, 5))
    def receive(self, count: int) -> None:
        ready = {
            n for n, v in self.living.items() if v.until_ms is None and v.due_ms <= self.now_ms
        }
        messages = self.broker.receive("t", max=count)
        assert {message.id for message in messages} <= ready
        assert len(messages) == min(count, len(ready))
        for message in messages:
            view = self.living[message.id]
            view.attempts += 1
            view.until_ms, view.delivery = self.now_ms + LEASE_MS, message
            assert message.attempts == view.attempts
            assert message.body == message.id.encode()

    @precondition(lambda self: any(v.delivery for v in self.living.values()))
    @rule(data=st.data(), verb=st.sampled_from(["ack", "nack", "extend"]))
    def settle(self, data: st.DataObject, verb: str) -> None:
        name = data.draw(st.sampled_from([n for n, v in self.living.items() if v.delivery]))
        view = self.living[name]
        assert view.delivery is not None
        if verb == "ack":
            assert self.broker.ack(view.delivery) == ["done"]
            del self.living[name]
        elif verb == "nack":
            assert self.broker.nack(view.delivery) == ["done"]
            self.back(name, self.now_ms)
        else:
            assert self.broker.extend(view.delivery, lease_ms=2 * LEASE_MS) == ["done"]
            view.until_ms = self.now_ms + 2 * LEASE_MS

    @precondition(lambda self: self.living)
    @rule(data=st.data(), delay=DELAYS, cancel=st.booleans())
    def change(self, data: st.DataObject, delay: int, cancel: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.living)))
        view = self.living[name]

        def act() -> None:
            if cancel:
                self.broker.cancel("t", name)
            else:
                self.broker.reschedule("t", name, delay_ms=delay)

        if view.until_ms is not None:
            with pytest.raises(errors.TooLate) as late:
                act()
            assert late.value.state == "leased"
            return
        act()
        if cancel:
            del self.living[name]
        else:
            view.due_ms = self.now_ms + delay

    @precondition(lambda self: self.dead)
    @rule()
    def replay(self) -> None:
        name = min(self.dead)
        assert [each.result for each in self.broker.replay("t", [name])] == ["done"]
        self.dead.discard(name)
        self.living[name] = Expected(self.now_ms)

    @rule(ms=st.sampled_from([1, 50, 999, 9_999, 60_000, 3_600_000, 86_400_000]))
    def advance(self, ms: int) -> None:
        self.broker.clock.advance(ms=ms)
        for name, view in list(self.living.items()):
            end_ms = None if view.until_ms is None else -(-view.until_ms // BUCKET_MS) * BUCKET_MS
            if end_ms is not None and end_ms <= self.now_ms:
                self.back(name, end_ms)

    @rule()
    def restart(self) -> None:
        now_ms = self.now_ms
        self.broker.close()
        self.open()
        assert self.now_ms == now_ms

    # ------------------------------------------------------------------ after each step

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "broker") or not self.sent:
            return
        counts = self.broker.stats("t", delay_buckets=False).counts
        leased = sum(view.until_ms is not None for view in self.living.values())
        ready = sum(
            view.until_ms is None and view.due_ms <= self.now_ms for view in self.living.values()
        )
        assert (counts.leased, counts.dead) == (leased, len(self.dead))
        assert (counts.ready, counts.waiting) == (ready, len(self.living) - leased - ready)


def test_any_calls_in_any_order() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=tries(25),
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
            deadline=None,
        ),
    )
