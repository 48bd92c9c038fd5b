"""The whole engine against a plain model: any sequence of calls, pauses, flushes and restarts.

The model is a dict of messages with due time, state, attempts and lease. After each step every
message's state, due time and id look-up agree, and so do the topic's counts. What a receive may
give is known as a set, since deliveries of one millisecond have no order a client can rely on.
A message that ended may be forgotten when its keep time and its hour are over; then it stays so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
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

from delaylog.broker.engine.control.job_filter import Filter
from delaylog.broker.engine.topics.settings import Backoff
from delaylog.storage.hours.hot_seconds import HOT_ROWS_MIN
from delaylog.storage.layout import MessageState as S
from tests.effort import tries

HOUR = 3_600_000
NEVER = 1 << 62
BUCKET = 50
MAX_RETRY = 3
ENDED_KEEP_MS = 86_400_000
DEAD_KEEP_MS = 7 * 86_400_000
LIVING = (S.WAITING, S.READY, S.LEASED)
DELAYS = st.one_of(
    st.integers(0, 3_000),
    st.sampled_from([0, 1, 9_999, 10_000, 10_001, 60_000, HOUR - 1, HOUR]),
    st.integers(0, 3 * HOUR),
)
PAUSES = st.one_of(
    st.integers(1, 3_000), st.sampled_from([1, 999, 10_000, 50_000]), st.integers(1, 3 * HOUR)
)


@dataclass
class Model:
    """One message, as a client would remember it."""

    name: str
    """Its id: the chosen one, or the one the server made."""
    body: bytes
    due: int
    expires: int = NEVER
    ttl: int = NEVER
    state: S = S.WAITING
    attempts: int = 0
    until: int = 0
    receipt: object = field(default=None, repr=False)
    after: Model | None = field(default=None, repr=False)
    """Whose end it waits for: one with its name that was under lease when it was sent."""
    first_due: int = field(init=False)
    """When it was due at first: its row in that hour leads to where it is now."""
    seen: S = S.WAITING
    """Its state after the last step."""
    ended: int = NEVER
    """Lower bound of the time at which it took its ended state."""
    forgotten: bool = False
    """A look-up did not find it any more."""

    def __post_init__(self) -> None:
        self.first_due = self.due

    def may_be_forgotten(self, now: int) -> bool:
        """Whether the broker may have removed an hour that the look-up needs.

        The keep time has passed, and the clock is past the hour after that one.
        """
        keep = DEAD_KEEP_MS if self.state is S.DEAD else ENDED_KEEP_MS
        hour = min(self.first_due, self.due) // HOUR
        return self.state not in LIVING and self.ended + keep <= now and hour + 1 < now // HOUR

    @property
    def first(self) -> Model | None:
        """Who has to end before one that is sent now with its name."""
        if self.state is S.LEASED:
            return self
        return self.after if self.after is not None and self.after.state in LIVING else None

    @property
    def ready(self) -> bool:
        return self.state is S.READY and (self.after is None or self.after.state not in LIVING)


class EngineMachine(RuleBasedStateMachine):
    """`host_class` is given by the test."""

    host_class: Callable[..., Any]

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.host = self.host_class(Path(self._folder.name) / "data")
        self.host.configure(
            max_retry=MAX_RETRY,
            ended_keep_ms=ENDED_KEEP_MS,
            dead_keep_ms=DEAD_KEEP_MS,
            backoff=Backoff(first_ms=1_000, max_ms=8_000, factor=2.0, jitter=0.0),
        )
        self.host.turn()
        self.messages: list[Model] = []
        self.by_name: dict[str, Model] = {}
        self.number = 0
        self.seen_ms = self.host.now_ms
        """The time after the last step."""

    def teardown(self) -> None:
        self.host.close()
        self._folder.cleanup()

    # ------------------------------------------------------------------ the model's time

    def pass_time(self) -> None:
        """Expire leases (in their buckets) and make due what is due; a retry may do both."""
        now = self.host.now_ms
        for m in self.messages:
            while True:
                if m.state is S.WAITING and m.due <= now:
                    m.state = S.READY
                bucket = -(-m.until // BUCKET) * BUCKET
                if m.state is S.LEASED and bucket <= now:
                    self.give_back(m, None, bucket)
                    continue
                break

    def give_back(self, m: Model, delay: int | None, now: int) -> None:
        if m.attempts > MAX_RETRY or m.expires <= now:
            m.state = S.DEAD
            return
        if delay is None:
            delay = min(1_000 * 2 ** (m.attempts - 1), 8_000)
        delay = max(delay, m.due - now)
        if delay:
            m.due = now + delay
        m.state = S.WAITING if m.due > now else S.READY

    # ------------------------------------------------------------------ rules

    @rule(
        delays=st.lists(DELAYS, min_size=1, max_size=6),
        names=st.none() | st.lists(st.sampled_from("abcdef"), min_size=6, max_size=6),
        merge=st.sampled_from(["keep", "replace", "reject"]),
        ttl=st.sampled_from([-1, -1, 2_000, HOUR]),
    )
    def send(self, delays: list[int], names: list[str] | None, merge: str, ttl: int) -> None:
        n = len(delays)
        bodies = [b"%d" % (self.number + k) for k in range(n)]
        self.number += n
        ids = None if names is None else names[:n]
        result = self.host.send(bodies, delay=delays, ids=ids, merge=merge, ttl_ms=ttl)
        server_made = self.host.ids_of(result)
        codes = result.results if not isinstance(result.results, int) else [0] * n
        fresh = {}
        for k in range(n):
            due = self.host.now_ms + delays[k]
            m = Model(server_made[k], bodies[k], due, NEVER if ttl < 0 else due + ttl)
            m.ttl = NEVER if ttl < 0 else ttl
            code = 0
            if ids is not None:
                m.name = ids[k]
                old = self.by_name.get(m.name)
                m.after = None if old is None else old.first
                living = old is not None and old.state in LIVING
                if merge == "replace":
                    if m.name in ids[k + 1 :]:
                        assert codes[k] == 2
                        continue
                    if living and old.state is not S.LEASED:
                        old.state = S.DELETED
                        code = 2
                elif living or m.name in fresh:
                    code = 1 if merge == "keep" else 3
                    kept = old if living else fresh[m.name]
                    assert result.deliver_at_ms[k] == kept.due
            assert codes[k] == code
            if code in (0, 2):
                assert result.deliver_at_ms[k] == due
                fresh[m.name] = m
                self.messages.append(m)
        self.by_name.update(fresh)

    @rule(count=st.integers(1, 8), lease=st.sampled_from([1, 50, 1_000, 30_000, HOUR]))
    def receive(self, count: int, lease: int) -> None:
        now = self.host.now_ms
        ready = {m.body: m for m in self.messages if m.ready}
        late = {body for body, m in ready.items() if m.expires <= now}
        if late:
            # Those are ended when they are met: take all, so that it is known which were.
            count = 1_000
        got = self.host.receive(count, lease=lease)
        assert len({message.body for message in got}) == len(got)
        for message in got:
            m = ready[message.body]
            assert message.body not in late, "never after its ttl"
            assert message.deliver_at_ms <= now, "never early"
            m.attempts += 1
            m.state, m.until, m.receipt = S.LEASED, now + lease, message
            assert message.attempts == m.attempts
            assert message.id in ("", m.name)
        if len(got) < count:
            assert len(got) == len(ready) - len(late), "all there is"
            for body in late:
                ready[body].state = S.DEAD if ready[body].attempts else S.EXPIRED

    @precondition(lambda self: any(m.receipt for m in self.messages))
    @rule(data=st.data(), action=st.sampled_from(["ack", "nack", "nack now", "later", "extend"]))
    def settle(self, data: st.DataObject, action: str) -> None:
        known = [m for m in self.messages if m.receipt is not None]
        chosen = data.draw(st.lists(st.sampled_from(known), unique_by=id, min_size=1, max_size=4))
        receipts = [m.receipt for m in chosen]
        now = self.host.now_ms
        good = [m for m in chosen if m.state is S.LEASED]
        if action == "ack":
            assert self.host.ack(receipts) == len(good)
            for m in good:
                m.state = S.ACKED
        elif action == "extend":
            lease = data.draw(st.sampled_from([1, 1_000, 60_000]))
            assert self.host.extend(receipts, lease) == len(good)
            for m in good:
                m.until = now + lease
        else:
            delay = {"nack": None, "nack now": 0, "later": data.draw(DELAYS)}[action]
            assert self.host.nack(receipts, delay) == len(good)
            for m in good:
                self.give_back(m, delay, now)

    @precondition(lambda self: self.named())
    @rule(data=st.data(), force=st.booleans())
    def cancel(self, data: st.DataObject, force: bool) -> None:
        chosen = self.draw_named(data)
        codes = self.host.cancel([m.name for m in chosen], force=force)
        for m, code in zip(chosen, codes, strict=True):
            can = m.state in (S.WAITING, S.READY) or (force and m.state is S.LEASED)
            assert code == (0 if can else 1)
        for m, code in zip(chosen, codes, strict=True):
            if code == 0:
                m.state = S.DELETED

    @precondition(lambda self: self.named())
    @rule(data=st.data(), delay=DELAYS)
    def reschedule(self, data: st.DataObject, delay: int) -> None:
        chosen = self.draw_named(data)
        now = self.host.now_ms
        codes = self.host.reschedule([m.name for m in chosen], now + delay)
        for m, code in zip(chosen, codes, strict=True):
            assert code == (0 if m.state in (S.WAITING, S.READY) else 1)
        for m, code in zip(chosen, codes, strict=True):
            if code == 0:
                if m.expires != NEVER:
                    m.expires += now + delay - m.due
                m.due = now + delay
                m.state = S.WAITING if delay else S.READY

    @precondition(lambda self: self.named())
    @rule(data=st.data(), kind=st.sampled_from([S.ACKED, S.DELETED]), hide=st.booleans())
    def end_by_force(self, data: st.DataObject, kind: S, hide: bool) -> None:
        """End messages whatever they are; ended ones change their kind."""
        for m in self.draw_named(data):
            self.host.end_by_force(m.name, kind, hide=hide)
            m.state = kind

    @precondition(lambda self: self.named())
    @rule(data=st.data(), delay=DELAYS)
    def replay(self, data: st.DataObject, delay: int) -> None:
        chosen = self.draw_named(data)
        now = self.host.now_ms
        codes = self.host.replay([m.name for m in chosen], now + delay)
        for m, code in zip(chosen, codes, strict=True):
            assert code == (0 if m.state is S.DEAD else 1)
            if code == 0:
                m.state = S.WAITING if delay else S.READY
                m.due, m.attempts, m.receipt = now + delay, 0, None
                m.expires = NEVER if m.ttl == NEVER else m.due + m.ttl

    @rule(
        action=st.sampled_from(["cancel", "reschedule"]),
        delay=DELAYS,
        first=st.none() | DELAYS,
        length=DELAYS,
    )
    def job(self, action: str, delay: int, first: int | None, length: int) -> None:
        """All that is due in a range of time."""
        now = self.host.now_ms
        wanted = Filter() if first is None else Filter(None, now + first, now + first + length)
        at = now + delay if action == "reschedule" else None
        job = self.host.run_job(action, wanted, deliver_at_ms=at)
        met = [
            m
            for m in self.messages
            if m.state in LIVING and (first is None or now + first <= m.due < now + first + length)
        ]
        free = [m for m in met if m.state is not S.LEASED]
        assert job.state == "done"
        assert (job.matched, job.done) == (len(met), len(free))
        assert job.too_late == len(met) - len(free)
        for m in free:
            if at is None:
                m.state = S.DELETED
                continue
            if m.expires != NEVER:
                m.expires += at - m.due
            m.due = at
            m.state = S.WAITING if delay else S.READY

    def named(self) -> list[Model]:
        """Messages that their name still leads to."""
        latest = [m for m in self.messages if self.by_name.get(m.name, m) is m]
        return [m for m in latest if not m.forgotten]

    def draw_named(self, data: st.DataObject) -> list[Model]:
        """Some of them."""
        known = st.sampled_from(self.named())
        return data.draw(st.lists(known, unique_by=id, min_size=1, max_size=4))

    @rule(ms=PAUSES)
    def wait(self, ms: int) -> None:
        self.host.advance(ms)

    @rule(ms=st.sampled_from([1, 2_500, 60_000, HOUR, 37 * HOUR]))
    def set_back(self, ms: int) -> None:
        """Somebody confirmed that the clock was wrong: nothing comes before its time by the new."""
        self.host.set_back(ms)
        now = self.host.now_ms
        for m in self.messages:
            if m.state is S.LEASED:
                m.until -= ms
            elif m.state is S.READY and m.due > now:
                m.state = S.WAITING

    @rule(ms=st.sampled_from([2_500, 60_000, HOUR, 37 * HOUR]))
    def jump_ahead(self, ms: int) -> None:
        """The clock was set ahead: what is left of a lease stays."""
        self.host.jump_ahead(ms)
        for m in self.messages:
            if m.state is S.LEASED:
                m.until += ms

    @rule(what=st.sampled_from(["flush", "checkpoint", "restart", "crash"]))
    def keep_house(self, what: str) -> None:
        getattr(self.host, what)()

    @rule(ms=PAUSES)
    def be_down(self, ms: int) -> None:
        """Down for a while: leases that ended meanwhile end at the start."""
        self.host.restart(ms)
        now = self.host.now_ms
        for m in self.messages:
            if m.state is S.LEASED and -(-m.until // BUCKET) * BUCKET <= now:
                self.give_back(m, None, now)

    # ------------------------------------------------------------------ what must hold

    @invariant()
    def agree(self) -> None:
        self.pass_time()
        self.note_ended()
        named = [m for m in self.messages if self.by_name.get(m.name, m) is m]
        for m, found in zip(named, self.host.find([m.name for m in named]), strict=True):
            if found is None or m.forgotten:
                assert found is None, (m, "is known again")
                assert m.may_be_forgotten(self.host.now_ms) or m.forgotten, m
                m.forgotten = True
                continue
            assert found.state is m.state, (m, found.state, self.host.now_ms)
            if m.state in LIVING:
                assert int(found.row["deliver_at"]) == m.due, m
        counts = self.host.topic.default.counts
        assert counts.leased == sum(m.state is S.LEASED for m in self.messages)
        assert counts.living == sum(m.state in LIVING for m in self.messages)
        assert sum(self.host.topic.default.hours.values()) == counts.living
        ready = sum(m.state is S.READY for m in self.messages)
        assert self.host.topic.default.ready_count == ready
        for name in ("acked", "expired", "dead", "deleted"):
            assert getattr(counts, name) == sum(m.state.name == name.upper() for m in self.messages)

    def note_ended(self) -> None:
        """Whatever ended since the last step did so after that, or after the clock was set back."""
        now = self.host.now_ms
        for m in self.messages:
            if m.state is not m.seen and m.state not in LIVING:
                m.ended = min(self.seen_ms, now)
            m.seen = m.state
        self.seen_ms = now


@pytest.mark.parametrize("hot_rows_min", [HOT_ROWS_MIN, 2])
def test_the_engine_agrees_with_a_model(host_class: type, hot_rows_min: int) -> None:
    """Messages, states, due times and counts, after each step; with and without hot seconds."""

    class Machine(EngineMachine):
        pass

    Machine.host_class = partial(host_class, hot_rows_min=hot_rows_min)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=tries(50),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
