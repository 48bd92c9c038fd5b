"""Rule K, second half: exactly one message for each instant of a schedule.

A message whose id is `schedule@instant` of a recorded schedule is a firing, so no client has sent
it. Three faults are found: an instant that has no message, one whose message came again after it
had ended, and a message of no instant. Overlap, catch-up, time to live, runs by hand and backfills
explain what they may explain, in the broker's favour.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from delaylog.broker.history.events import ABSENT, FOREVER, Kind
from delaylog.broker.history.life import Context, GroupLife, Life, applies, by_t1
from delaylog.broker.history.model import ScheduleCall
from delaylog.broker.history.schedule_spans import AHEAD_MS, After, Span, spans_of
from delaylog.broker.history.sources import Latenesses

Instants = Callable[[Mapping[str, Any]], After]
"""From the members of a timing to its instants. Raises ValueError for a wrong timing."""


class UnknownTiming(ValueError):
    """The history has schedules, but the checker got no function for their instants."""


class _Calls:
    """What is recorded of one schedule, and when each of its firings was first received."""

    __slots__ = ("backfills", "fired", "lines", "runs", "unknown_runs")

    def __init__(self) -> None:
        self.lines: list[ScheduleCall] = []
        self.runs: dict[int, ScheduleCall] = {}
        self.unknown_runs = 0
        self.backfills: list[tuple[int, int]] = []
        self.fired: dict[int, int] = {}

    def backfilled(self, instant_ms: int) -> bool:
        return any(since <= instant_ms < until for since, until in self.backfills)


class ScheduleBook:
    """All schedules of a history. Add calls, then firings, then check once."""

    def __init__(self, instants: Instants | None) -> None:
        self._instants = instants
        self._by_id: dict[str, _Calls] = {}

    def add(self, call: ScheduleCall) -> None:
        """Add one call; a refused one has no effect."""
        if self._instants is None:
            raise UnknownTiming(f"schedule {call.id!r}: give the checker `instants` for rule K")
        if call.ok is False:
            return
        calls = self._by_id.get(call.id)
        if calls is None:
            calls = self._by_id[call.id] = _Calls()
        if call.op == "schedule":
            calls.lines.append(call)
        elif call.op == "backfill":
            if call.since is not None and call.until is not None:
                calls.backfills.append((call.since, call.until))
        elif call.at is not None:
            calls.runs[call.at] = call
        else:
            calls.unknown_runs += 1

    def add_firing(self, life: Life, context: Context, latenesses: Latenesses) -> bool:
        """Check the deliveries of a firing, and keep its instant; False if it is none."""
        name, _, text = life.name.rpartition("@")
        calls = self._by_id.get(name)
        if calls is None or not (text.isascii() and text.isdigit()):
            return False
        instant_ms = int(text)
        deliveries = [d for g in life.groups.values() for d in g.deliveries]
        seen = [*deliveries, *life.unseen, *life.dead, *life.cancels]
        if not seen:
            return True
        context.findings.checked("K")
        calls.fired[instant_ms] = min(min(seen, key=by_t1).t1, FOREVER)
        by_hand = instant_ms in calls.runs or calls.unknown_runs or calls.backfilled(instant_ms)
        for number, group in life.groups.items():
            if not calls.backfilled(instant_ms):
                _check_ends(life, number, group, context)
            for delivery in group.deliveries if not by_hand else ():
                stated_ms = delivery.t1 if delivery.now == ABSENT else delivery.now
                context.findings.checked("B")
                if stated_ms < instant_ms:
                    text = f"delivered at {stated_ms}, before its instant"
                    context.findings.violated("B", life.name, delivery.t1, text)
        if deliveries and not by_hand and _is_plain(calls):
            latenesses.add(min(deliveries, key=by_t1), instant_ms, context)
        return True

    def check(self, context: Context, end_ms: int) -> None:
        """Check every schedule: its instants against the messages that came."""
        for name, calls in self._by_id.items():
            assert self._instants is not None
            spans = spans_of(calls.lines, self._instants, end_ms, context)
            _check_aliens(name, calls, spans, context)
            for span in spans:
                if span.after is not None:
                    _check_owed(name, calls, span, end_ms, context)


def _check_ends(life: Life, number: int, group: GroupLife, context: Context) -> None:
    """Report a delivery that began after the message had certainly ended: it came from another."""
    ends = [s for s in group.settles if s.kind == Kind.ACK and s.is_known]
    ends += [c for c in life.cancels if c.is_known and applies(c, number)]
    if not ends:
        return
    ended = min(ends, key=by_t1)
    for delivery in group.deliveries:
        if delivery.t0 > ended.t1:
            text = (
                f"delivered by a call begun at {delivery.t0}, after its message had ended at "
                f"{ended.t1}: the instant fired twice"
            )
            context.findings.violated("K", life.name, delivery.t1, text)


def _is_plain(calls: _Calls) -> bool:
    """Whether each firing is due at its instant, so that its lateness can be measured."""
    answers = [line.answer for line in calls.lines if line.ok and line.answer is not None]
    return all(a["overlap"] == "allow" and a["jitter_ms"] == 0 for a in answers)


def _check_aliens(name: str, calls: _Calls, spans: list[Span], context: Context) -> None:
    """Report messages of no instant. A run whose answer was lost explains one of them."""
    runs = calls.unknown_runs
    for instant_ms, first_ms in sorted(calls.fired.items()):
        if instant_ms in calls.runs:
            continue
        in_time = [span for span in spans if span.first_ms <= instant_ms <= span.last_ms]
        if any(_has(span, instant_ms) for span in in_time):
            continue
        is_instant = any(_has(span, instant_ms) for span in spans)
        if is_instant and calls.backfilled(instant_ms):
            continue
        if runs:
            runs -= 1
            continue
        text = (
            "the schedule did not run with this instant then"
            if is_instant
            else "no instant of the schedule, and nobody ran it by hand"
        )
        context.findings.violated("K", f"{name}@{instant_ms}", first_ms, text)


def _has(span: Span, instant_ms: int) -> bool:
    return span.after is None or span.after(instant_ms - 1) == instant_ms


def _check_owed(name: str, calls: _Calls, span: Span, end_ms: int, context: Context) -> None:
    """Report instants without a message, but for those that overlap may have passed over."""
    overlap, closing = span.answer["overlap"], span.closing
    if overlap != "allow" and closing is None:
        return
    owed, missing = 0, []
    for instant_ms in _owed(span, end_ms, context):
        owed += 1
        if instant_ms not in calls.fired and not _may_be_late(span, instant_ms, context):
            missing.append(instant_ms)
    context.findings.checked("K", owed)
    if overlap == "allow":
        for instant_ms in missing:
            text = "this instant has no message"
            context.findings.violated("K", f"{name}@{instant_ms}", instant_ms, text)
        return
    assert closing is not None
    if overlap == "replace":
        ran = sum(1 for run in calls.runs.values() if span.began_ms < run.t0 < span.ended_ms)
        spare = closing["n"] - span.answer["n"] - ran - (owed - len(missing))
        did = "cancelled before their consumer saw them"
    else:
        # A pause gives the firing up that waits for its turn.
        waits = closing["buffered_ms"] is not None or closing["state"] != "running"
        spare = closing["skipped"] - span.answer["skipped"] + (overlap == "buffer_one" and waits)
        did = "skipped or waiting for their turn"
    # The first answer may be of a state that a fault undid before it was durable.
    spare += context.marks.lease_loss(span.began_ms, span.ended_ms) is not None
    if len(missing) > spare:
        text = (
            f"{len(missing)} of {owed} instants have no message, of which {max(spare, 0)} were "
            f"{did}; this is the first"
        )
        context.findings.violated("K", f"{name}@{missing[0]}", missing[0], text)


def _owed(span: Span, end_ms: int, context: Context) -> Iterator[int]:
    """Instants of the span whose messages must have come by the end of the history."""
    assert span.after is not None
    jitter_ms, ttl_ms = span.answer["jitter_ms"], span.answer.get("ttl_ms")
    until_ms = min(span.owed_until_ms, end_ms - context.settings.bound_ms - jitter_ms)
    instant_ms = span.after(span.owed_ms - 1)
    while instant_ms is not None and instant_ms < until_ms:
        # One that may have expired owes nothing.
        if ttl_ms is None or instant_ms + ttl_ms > end_ms:
            yield instant_ms
        instant_ms = span.after(instant_ms)


def _may_be_late(span: Span, instant_ms: int, context: Context) -> bool:
    """Whether catch-up may have passed the instant over: it was late when an outage ended."""
    slack_ms, bound_ms = context.settings.slack_ms, context.settings.bound_ms
    is_all = span.answer["catch_up"] == "all"
    for kind, first_ms, last_ms in context.marks.faults:
        if instant_ms < first_ms - slack_ms - AHEAD_MS:
            continue
        if kind == "clock":
            if not is_all:
                return True
            continue
        back_ms = last_ms + slack_ms + bound_ms
        window_ms = span.answer["catch_up_window_ms"] if is_all else 0
        if instant_ms < back_ms - window_ms:
            return True
    return False
