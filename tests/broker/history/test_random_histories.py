"""The checker against a toy queue: right histories break no rule, planted faults always do.

The toy keeps every promise of the real broker in a few lines of plain Python: due times, leases,
retries, keys, groups, ids that are used again, calls whose answer is lost and that take effect
late or never, kills that lose young leases, a clock that is stepped. Each seed makes a history
whose calls overlap. The first test asserts that it holds; the others change one thing in it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from delaylog.broker.history import Call, CheckReport, CheckSettings, HistoryChecker, Mark
from tests.effort import tries

LEASE_MS = 200
BOUND_MS = 3_000
SLACK_MS = 30
SECONDS = 4

History = list[Call | Mark]


@dataclass(slots=True)
class Part:
    """A message's state in one group."""

    state: str = "waiting"
    attempt: int = 0
    ready_ms: int = 0
    lease: str = ""
    leased_ms: int = 0
    until_ms: int = 0


@dataclass(slots=True)
class Message:
    """One living or ended message; `due` and `expires` are by the broker's clock."""

    name: str
    number: int
    due: int
    body: str
    key: str | None
    parts: dict[str | None, Part]
    expires: int | None = None


@dataclass(slots=True)
class ToyQueue:
    """The queue and its clients in one loop over effect times."""

    random: Random
    t: int = 10_000
    offset_ms: int = 0
    stated_ms: int = 0
    numbers: int = 0
    living: dict[str, Message] = field(default_factory=dict)
    groups: list[str | None] = field(default_factory=list)
    history: History = field(default_factory=list)
    later: list[tuple[int, int, Callable[[], object]]] = field(default_factory=list)

    def run(self) -> History:
        """A few seconds of everything, then quiet until all is delivered and acked."""
        random = self.random
        self.groups = [None] if random.random() < 0.6 else ["g", "h"]
        self.offset_ms = random.randint(-40, 40)
        ops = [self.send] * 4 + [self.receive] * 4 + [self.cancel, self.reschedule, self.fault]
        finish = self.t + 1000 * random.randint(1, SECONDS)
        while self.t < finish:
            self.advance(random.choice((0, 0, 1, 3, 20, 60)))
            random.choice(ops)()
        while self.later or self.living:
            self.advance(20)
            self.receive(is_draining=True)
        end_ms = self.t + 2 * BOUND_MS
        self.history.append(Mark("end", end_ms, end_ms))
        return self.history

    def advance(self, by_ms: int) -> None:
        """Move time on, letting calls that are under way take effect at theirs."""
        target = self.t + by_ms
        while self.later and min(self.later)[0] <= target:
            entry = min(self.later)
            self.later.remove(entry)
            self.t = max(self.t, entry[0])
            entry[2]()
        self.t = target

    def now(self) -> int:
        """The broker's stated clock: never backwards."""
        self.stated_ms = max(self.stated_ms, self.t + self.offset_ms)
        return self.stated_ms

    def at(self, t: int, action: Callable[[], object]) -> None:
        """Let something happen at a later time."""
        self.numbers += 1
        self.later.append((max(t, self.t), self.numbers, action))

    def call(self, op: str, act: Callable[[], dict[str, Any]], t0: int, **asked: Any) -> None:
        """A client's call: it takes effect, or its answer or itself is lost, or it comes late."""
        t1 = self.t + self.random.randint(0, 8)
        fate = self.random.random()
        if fate < 0.88:
            self.record(op, t0, t1, {**asked, **act()})
        else:
            self.record(op, t0, t1, {**asked, "ok": None})
            if fate < 0.92:
                act()
            elif fate < 0.96:
                self.at(t1 + self.random.randint(0, 300), act)

    def record(self, op: str, t0: int, t1: int, fields: dict[str, Any]) -> None:
        fields = {"ok": True, "id": None, **fields}
        self.history.append(Call(t0=t0, t1=t1, op=op, **fields))

    def send(self) -> None:
        random = self.random
        self.numbers += 1
        name = f"reused-{random.randint(0, 5)}" if random.random() < 0.3 else f"m{self.numbers}"
        is_replacing, number = random.random() < 0.5, self.numbers
        asked_due = self.now() + random.choice((-50, 0, 30, 200, 900))
        key = None if random.random() < 0.6 else f"k{random.randint(0, 2)}"
        body, ttl_ms = f"body-{random.randint(0, 9)}", 400 if random.random() < 0.1 else None

        def act() -> dict[str, Any]:
            self.expire()
            due = max(asked_due, self.now())
            known = self.living.get(name)
            if known is not None:
                states = {part.state for part in known.parts.values()}
                attempts = any(part.attempt for part in known.parts.values())
                if not is_replacing or states != {"waiting"} or attempts:
                    return {"due": known.due, "result": "kept"}
                known.due, known.body = due, body
                known.expires = None if ttl_ms is None else due + ttl_ms
                return {"due": due, "result": "replaced", "expires": known.expires}
            parts: dict[str | None, Part] = {group: Part() for group in self.groups}
            expires = None if ttl_ms is None else due + ttl_ms
            self.living[name] = Message(name, number, due, body, key, parts, expires)
            return {"due": due, "result": "created", "expires": expires}

        t0 = self.t - random.randint(0, 8)
        expires = None if ttl_ms is None else asked_due + ttl_ms
        self.call("send", act, t0, id=name, due=asked_due, body=body, key=key, expires=expires)

    def receive(self, is_draining: bool = False) -> None:
        """Hand out what is ready to one consumer, who may have waited long; maybe lose it all."""
        random = self.random
        self.expire()
        group = random.choice(self.groups)
        t0, t1 = self.t - random.choice((0, 2, 8, 300)), self.t + random.choice((0, 3, 8))
        taken = self.ready(group)[: random.choice((1, 2, 5))]
        is_lost = not is_draining and random.random() < 0.1
        if is_lost:
            self.record("deliver", t0, t1, {"ok": None, "group": group})
        for message in taken:
            part = message.parts[group]
            self.numbers += 1
            part.state, part.attempt, part.lease = "leased", part.attempt + 1, f"L{self.numbers}"
            part.leased_ms, part.until_ms = self.t, self.t + LEASE_MS
            if is_lost:
                continue
            fields = {"id": message.name, "now": self.now(), "due": message.due, "group": group,
                      "attempt": part.attempt, "lease": part.lease, "body": message.body,
                      "lease_until": self.now() + LEASE_MS}  # fmt: skip
            self.record("deliver", t0, t1, fields)
            self.settle_later(message, group, part.lease, t1, is_draining)

    def ready(self, group: str | None) -> list[Message]:
        """What may be handed out, in order; of a key only the one whose turn it is."""
        result, blocked = [], set()
        order = sorted(
            self.living.values(),
            key=lambda m: (-min(m.parts[group].attempt, 1), m.due, m.number),
        )
        for message in order:
            part = message.parts[group]
            is_busy = message.key is not None and message.key in blocked
            is_due = message.due <= self.now() and part.ready_ms <= self.t
            if part.state == "waiting" and is_due and not is_busy:
                result.append(message)
            if part.state == "leased" or part.attempt or (is_due and part.state == "waiting"):
                if part.state != "ended" and message.key is not None:
                    blocked.add(message.key)
        return result

    def settle_later(
        self, message: Message, group: str | None, lease: str, since_ms: int, is_draining: bool
    ) -> None:
        """The consumer acks, nacks, extends or forgets what it got, some time after it got it."""
        part, random = message.parts[group], self.random
        op = "ack" if is_draining else random.choice(("ack", "ack", "ack", "nack", "extend", None))
        if op is None:
            return
        begin = since_ms + random.choice((1, 5, 50, 190, 230))
        delay_ms = random.choice((0, 0, 100))

        def act() -> dict[str, Any]:
            self.expire()
            if part.lease != lease or part.state != "leased":
                return {"ok": False}
            if op == "extend":
                part.until_ms = self.t + LEASE_MS
                return {"ok": True, "now": self.now()}
            part.state = "ended" if op == "ack" else "waiting"
            part.lease, part.ready_ms = "", self.t + delay_ms
            self.forget(message)
            return {"ok": True}

        def begun() -> None:
            lease_ms = LEASE_MS if op == "extend" else None
            self.call(op, act, begin, id=message.name, lease=lease, group=group, lease_ms=lease_ms)

        self.at(begin + random.randint(0, 8), begun)

    def change(self, op: str, due: int | None) -> None:
        """Cancel or reschedule in each group where the message still waits."""
        if not self.living:
            return
        name = self.random.choice(sorted(self.living))
        t0 = self.t - self.random.randint(0, 8)

        def act(group: str | None) -> dict[str, Any]:
            self.expire()
            message = self.living.get(name)
            if message is None or message.parts[group].state != "waiting":
                return {"ok": False}
            if op == "cancel":
                message.parts[group].state = "ended"
                self.forget(message)
                return {"ok": True}
            message.due = max(due or 0, self.now())
            message.parts[group].ready_ms = 0
            if message.expires is not None:
                message.expires = message.due + 400
            return {"ok": True, "due": message.due}

        if op == "reschedule" and len(self.groups) > 1:
            return  # The toy has one due time a message.
        for group in self.groups:
            self.call(op, partial(act, group), t0, id=name, group=group, due=due)

    def cancel(self) -> None:
        self.change("cancel", None)

    def reschedule(self) -> None:
        self.change("reschedule", self.now() + self.random.choice((0, 50, 500, 1500)))

    def fault(self) -> None:
        """A kill that loses the youngest leases, or a step of the broker's clock."""
        kind = self.random.choice(("kill", "failover", "clock", None, None))
        if kind is None:
            return
        t = self.t + self.random.randint(-SLACK_MS // 2, SLACK_MS // 2)
        self.history.append(Mark(kind, t, t))
        if kind == "clock":
            self.offset_ms += self.random.randint(-400, 400)
            return
        for message in self.living.values():
            for part in message.parts.values():
                if part.state == "leased" and self.t - part.leased_ms <= 30:
                    part.state, part.lease, part.attempt = "waiting", "", part.attempt - 1

    def expire(self) -> None:
        """End leases that ran out, messages past their ttl, and what was tried too often."""
        for message in list(self.living.values()):
            for part in message.parts.values():
                if part.state == "leased" and part.until_ms <= self.t:
                    part.state, part.lease, part.ready_ms = "waiting", "", self.t
                if part.state == "waiting":
                    is_over = message.expires is not None and message.expires <= self.now()
                    if is_over or part.attempt >= 6:
                        part.state = "ended"
            self.forget(message)

    def forget(self, message: Message) -> None:
        if all(part.state == "ended" for part in message.parts.values()):
            if self.living.get(message.name) is message:
                del self.living[message.name]


def history_of(seed: int) -> History:
    return ToyQueue(Random(seed)).run()


def check(history: History) -> CheckReport:
    options = CheckSettings(bound_ms=BOUND_MS, lease_ms=LEASE_MS, slack_ms=SLACK_MS)
    checker = HistoryChecker(options)
    checker.extend(history)
    return checker.finish()


def explain(report: CheckReport) -> str:
    return "\n".join(str(v) for findings in report.rules.values() for v in findings.examples)


SEEDS = st.integers(0, 2**32)


@settings(max_examples=tries(150), deadline=None)
@given(SEEDS)
def test_a_right_history_breaks_no_rule(seed: int) -> None:
    report = check(history_of(seed))
    assert report.holds, explain(report)


@settings(max_examples=tries(20), deadline=None)
@given(SEEDS, SEEDS)
def test_the_order_of_the_lines_does_not_matter(seed: int, other: int) -> None:
    history, random = history_of(seed), Random(other)
    shuffled = sorted(history, key=lambda _: random.random())
    first, second = check(history), check(shuffled)
    assert second.holds
    assert first.fates == second.fates
    assert first.duplicates == second.duplicates


def test_the_toy_tries_every_rule() -> None:
    """A rule that no random history tries would be tested by nothing here."""
    reports = [check(history_of(seed)) for seed in range(tries(40))]
    for rule in "ABCDEFGHIJ":
        assert sum(report.rules[rule].checked for report in reports) > 20, rule
    for cause in ("nack", "lease", "kill", "failover"):
        assert sum(report.duplicates[cause] for report in reports) > 3, cause


class Planter:
    """Puts one fault into a right history; `assume` skips a history that has no place for it."""

    def __init__(self, history: History, random: Random) -> None:
        self.history = list(history)
        self.random = random
        self.calls = [item for item in history if isinstance(item, Call)]
        self.marks = [item for item in history if isinstance(item, Mark)]
        self.by_id: dict[str, list[Call]] = {}
        for call in self.calls:
            self.by_id.setdefault(call.id or "", []).append(call)

    def of(self, name: str | None, op: str, *, ok: bool | None = True) -> list[Call]:
        return [c for c in self.by_id.get(name or "", ()) if c.op == op and c.ok is ok]

    def pick(self, wanted: Callable[[Call], bool]) -> Call:
        """Any call of a message that was sent once, with a known answer, and that is wanted."""
        calls = [c for c in self.calls if c.ok and self.is_single(c) and wanted(c)]
        assume(calls)
        return self.random.choice(calls)

    def is_single(self, call: Call) -> bool:
        calls = self.by_id[call.id or ""]
        return [c.ok for c in calls if c.op == "send"] == [True]

    def is_still(self, call: Call) -> bool:
        """Whether no unknown outcome of the message and no mark near the call is an excuse."""
        calls = self.by_id[call.id or ""]
        marks = [m for m in self.marks if m.t >= call.t0 - 100 and m.t <= call.t1 + 100]
        return not marks and all(c.ok is not None for c in calls)

    def is_alone(self, call: Call) -> bool:
        """Whether nothing about the message was under way beside this call, and it was short."""
        others = [c for c in self.by_id[call.id or ""] if c is not call and c.group == call.group]
        return call.t1 - call.t0 < 20 and all(c.t1 < call.t0 or c.t0 > call.t1 for c in others)

    def replace(self, old: Call, **fields: Any) -> None:
        self.history[self.history.index(old)] = old._replace(**fields)

    def add(self, call: Call, **fields: Any) -> Call:
        added = call._replace(**fields)
        self.history.append(added)
        return added


def lose(p: Planter) -> None:
    call = p.pick(lambda c: c.op == "deliver" and p.of(c.id, "send")[0].expires is None
                  and not p.of(c.id, "cancel", ok=None) and not p.of(c.id, "cancel"))  # fmt: skip
    p.history = [c for c in p.history
                 if isinstance(c, Mark) or c.id != call.id or c.op == "send"]  # fmt: skip


def deliver_early(p: Planter) -> None:
    call = p.pick(lambda c: c.op == "deliver" and p.is_still(c) and not p.of(c.id, "reschedule"))
    p.replace(call, now=(p.of(call.id, "send")[0].due or 0) - 1)


def lease_twice(p: Planter) -> None:
    call = p.pick(lambda c: c.op == "deliver" and p.is_still(c) and p.is_alone(c))
    p.add(call, lease="planted", attempt=(call.attempt or 0) + 1)


def deliver_acked(p: Planter) -> None:
    call = p.pick(lambda c: c.op == "deliver" and bool(p.of(c.id, "ack"))
                  and c.group in {a.group for a in p.of(c.id, "ack")})  # fmt: skip
    t = p.marks[-1].t
    p.add(call, lease="planted", t0=t - 5, t1=t, now=t + 5_000)


def deliver_cancelled(p: Planter) -> None:
    cancel = p.pick(lambda c: c.op == "cancel")
    t = p.marks[-1].t
    send = p.of(cancel.id, "send")[0]
    p.add(send, op="deliver", t0=t - 5, t1=t, now=t + 5_000, group=cancel.group, result=None)


def deliver_cancelled_to_a_waiting_receive(p: Planter) -> None:
    cancel = p.pick(lambda c: c.op == "cancel" and p.is_still(c))
    send = p.of(cancel.id, "send")[0]
    assume(not p.of(cancel.id, "deliver"))
    p.add(send, op="deliver", t0=cancel.t0 - 5, t1=cancel.t1 + 5, now=cancel.t1 + 5_000,
          group=cancel.group, result=None)  # fmt: skip


def ignore_a_reschedule(p: Planter) -> None:
    move = p.pick(lambda c: c.op == "reschedule" and p.is_still(c))
    send = p.of(move.id, "send")[0]
    assume(len(p.of(move.id, "reschedule")) == 1 and (move.due or 0) > (send.due or 0))
    assume(send.t1 < move.t0 and not p.of(move.id, "cancel"))
    p.add(send, op="deliver", t0=move.t1 + 1, t1=move.t1 + 9, now=send.due, result=None)


def open_a_key_twice(p: Planter) -> None:
    call = p.pick(lambda c: c.op == "deliver" and p.is_still(c) and p.is_alone(c)
                  and bool(p.of(c.id, "send")[0].key))  # fmt: skip
    send = p.of(call.id, "send")[0]
    p.add(send, id="planted", t0=0, t1=1, due=call.now)
    p.add(call, id="planted", lease="planted", body=send.body)


def break_a_keys_order(p: Planter) -> None:
    call = p.pick(lambda c: c.op == "deliver" and bool(p.of(c.id, "send")[0].key)
                  and not p.of(c.id, "reschedule") and not p.of(c.id, "reschedule", ok=None)
                  and not p.of(c.id, "dead"))  # fmt: skip
    send = p.of(call.id, "send")[0]
    t = p.marks[-1].t
    p.add(send, id="planted", t0=0, t1=1, due=(send.due or 0) - 1)
    p.add(call, id="planted", lease="planted", t0=t - 5, t1=t, now=t + 5_000)


def create_twice(p: Planter) -> None:
    send = p.pick(lambda c: c.op == "send" and c.expires is None and all(
                  d is c or d.t0 > c.t1 + 2 for d in p.by_id[c.id or ""]))  # fmt: skip
    p.add(send, t0=send.t1 + 1, t1=send.t1 + 2)
    # A receive whose answer was lost may have leased the first; without them nothing has.
    p.history = [c for c in p.history if isinstance(c, Mark) or c.id is not None]


def alter_a_body(p: Planter) -> None:
    p.replace(p.pick(lambda c: c.op == "deliver"), body="planted")


def deliver_from_nowhere(p: Planter) -> None:
    p.add(p.pick(lambda c: c.op == "deliver"), id="planted")


FAULTS = {
    lose: "A",
    deliver_early: "B",
    lease_twice: "C",
    deliver_acked: "C",
    deliver_cancelled: "D",
    deliver_cancelled_to_a_waiting_receive: "D",
    ignore_a_reschedule: "E",
    open_a_key_twice: "F",
    break_a_keys_order: "G",
    create_twice: "H",
    alter_a_body: "J",
    deliver_from_nowhere: "J",
}


@pytest.mark.parametrize(("plant", "rule"), FAULTS.items(), ids=lambda f: getattr(f, "__name__", f))
@settings(
    max_examples=tries(25), deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)
@given(SEEDS, SEEDS)
def test_a_planted_fault_is_found(
    plant: Callable[[Planter], None], rule: str, seed: int, other: int
) -> None:
    planter = Planter(history_of(seed), Random(other))
    plant(planter)
    report = check(planter.history)
    assert rule in report.broken
