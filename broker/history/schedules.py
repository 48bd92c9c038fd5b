"""Rule K: exactly one message for each instant of a schedule.

First it is found what the recorded calls of one schedule allow, and what they demand. An answer
states `next_ms`: the broker has decided every instant before it. So between two answers about one
timing the broker's own words say which instants are due a message, whatever its clock did. Where a
span ends otherwise (a pause, a change, a deletion, a lost answer, the end of the history), the
clients' clock decides, unless the broker's was stepped.

A message whose id is `schedule@instant` of a recorded schedule is a firing, so no client has sent
it. Three faults are found: an instant that has no message, one whose message came again after it
had ended, and a message of no instant. Overlap, catch-up, time to live, runs by hand and backfills
explain what they may explain, in the broker's favour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

from delaylog.broker.history.events import ABSENT, FOREVER, Kind
from delaylog.broker.history.life import Context, GroupLife, Life, applies, by_t1
from delaylog.broker.history.model import ScheduleCall
from delaylog.broker.history.sources import Latenesses

# -------------------------------------------------------------- what the calls allow and demand

After = Callable[[int], int | None]
"""The first instant after a time, both in Unix ms; None: there is none."""

AHEAD_MS = 1_000
"""How long before its due time a firing may become a message, which a later call leaves."""

TIMING = ("cron", "interval_ms", "rrule", "zone", "gap", "fold", "start_ms", "end_ms", "count")


class Span(NamedTuple):
    """A time between two calls. Instants in [owed_ms, owed_until_ms) are due a message."""

    after: After | None
    """None: a call with an unknown outcome, so any instant may have fired."""
    first_ms: int
    last_ms: int
    """Instants from the first to the last, both included, may have a message."""
    owed_ms: int = 0
    owed_until_ms: int = 0
    answer: Mapping[str, Any] = {}
    closing: Mapping[str, Any] | None = None
    """The next answer about the same timing, whose counts tell what overlap has done meanwhile."""
    began_ms: int = 0
    ended_ms: int = 0
    """The calls at both ends, by the clients' clock."""


def timing_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The members of the timing in an answer."""
    return {name: answer[name] for name in TIMING if answer.get(name) is not None}


def spans_of(
    calls: Sequence[ScheduleCall],
    instants: Callable[[Mapping[str, Any]], After],
    end_ms: int,
    context: Context,
) -> list[Span]:
    """The spans between the calls of one schedule. `instants` gives the function of a timing."""
    lines = _in_order(calls)
    stepped = context.marks.clock_stepped(-FOREVER, FOREVER)
    slack_ms = context.settings.slack_ms
    caps = _caps(lines, stepped=stepped, slack_ms=slack_ms)
    out = []
    for index, call in enumerate(lines):
        following = lines[index + 1] if index + 1 < len(lines) else None
        last_ms = FOREVER
        if following is not None and following.ok and not stepped:
            last_ms = following.t1 + AHEAD_MS + slack_ms
        if call.ok is None:
            out.append(Span(None, -FOREVER if stepped else call.t0 - slack_ms, last_ms))
            continue
        answer = _running(call)
        if answer is None:
            continue
        closing = following.answer if following is not None and following.ok else None
        if closing is not None and timing_of(closing) != timing_of(answer):
            closing = None
        # By the clients' clock. A firing is due up to its jitter after its instant.
        ended_ms = end_ms if following is None else following.t0
        until_ms = -FOREVER if stepped else ended_ms - slack_ms - answer["jitter_ms"]
        if closing is not None and closing["state"] == "running":
            last_ms = FOREVER
            until_ms = until_ms if closing["next_ms"] is None else closing["next_ms"]
        elif closing is not None and closing["state"] == "ended":
            last_ms, until_ms = FOREVER, (closing.get("fired_ms") or 0) + 1
        # A client may have repeated the call, so the schedule may have fired before the answer. One
        # that is older than the history has.
        first_ms = min(answer["next_ms"], (answer.get("fired_ms") or FOREVER))
        if not stepped:
            first_ms = min(answer["next_ms"], call.t0 - slack_ms)
        if index == 0 and (answer["n"] or answer["skipped"]):
            first_ms = -FOREVER
        out.append(
            Span(
                _after(call, instants),
                first_ms=first_ms,
                last_ms=last_ms,
                owed_ms=answer["next_ms"],
                owed_until_ms=min(until_ms, caps[index]),
                answer=answer,
                closing=closing,
                began_ms=call.t1,
                ended_ms=ended_ms,
            )
        )
    return out


def _in_order(calls: Sequence[ScheduleCall]) -> list[ScheduleCall]:
    return sorted(calls, key=lambda call: (call.t1, call.t0))


def _running(call: ScheduleCall) -> dict[str, Any] | None:
    """The answer, if the schedule waits for an instant."""
    answer = call.answer if call.ok else None
    if answer is None or answer["state"] != "running" or answer["next_ms"] is None:
        return None
    return answer


def _caps(lines: Sequence[ScheduleCall], *, stepped: bool, slack_ms: int) -> list[int]:
    """For each line the time from which its instants may have been taken back.

    The next pause, change or deletion takes back what was sent ahead of it. Where the clock was
    stepped, that is what the answer before it says less AHEAD_MS.
    """
    caps, cap_ms = [FOREVER] * len(lines), FOREVER
    for index in range(len(lines) - 2, -1, -1):
        answer, following = _running(lines[index]), _running(lines[index + 1])
        if answer is None:
            cap_ms = FOREVER
        elif following is None or timing_of(following) != timing_of(answer):
            cap_ms = lines[index + 1].t0 - slack_ms - answer["jitter_ms"]
            if stepped:
                cap_ms = (answer.get("fired_ms") or 0) - AHEAD_MS + 1
        caps[index] = cap_ms
    return caps


def _after(call: ScheduleCall, instants: Callable[[Mapping[str, Any]], After]) -> After:
    assert call.answer is not None
    try:
        return instants(timing_of(call.answer))
    except ValueError as error:
        raise ValueError(f"schedule {call.id!r}: {error}") from None


# -------------------------------------------------------------------------------------- firings

Instants = Callable[[Mapping[str, Any]], After]
"""From the members of a timing to its instants. Raises ValueError for a wrong timing."""


class UnknownTiming(ValueError):
    """The history has schedules, but the checker got no function for their instants."""


class _Calls:
    """What is recorded of one schedule, and when each of its firings was first received."""

    __slots__ = ("_made_again", "backfills", "fired", "lines", "runs", "unknown_runs")

    def __init__(self) -> None:
        self.lines: list[ScheduleCall] = []
        self.runs: dict[int, ScheduleCall] = {}
        self.unknown_runs = 0
        self.backfills: list[tuple[int, int]] = []
        self.fired: dict[int, int] = {}
        self._made_again: list[tuple[int, ScheduleCall]] | None = None

    def made_again(self, instant_ms: int) -> list[ScheduleCall]:
        """The calls that made the schedule after it was removed, so that this instant is ahead."""
        if self._made_again is None:
            self._made_again = [
                (answer["next_ms"], made)
                for removed, made in pairwise(_in_order(self.lines))
                if removed.answer is None and (answer := _running(made)) is not None
            ]
        return [made for next_ms, made in self._made_again if next_ms <= instant_ms]

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
                _check_ends(life, number, group, calls.made_again(instant_ms), context)
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


def _check_ends(
    life: Life, number: int, group: GroupLife, made: Sequence[ScheduleCall], context: Context
) -> None:
    """Report a delivery that began after the message had certainly ended: it came from another.

    `made`: calls that made the schedule again. The instant may fire again after each of them.
    """
    ends = [s for s in group.settles if s.kind == Kind.ACK and s.is_known]
    ends += [c for c in life.cancels if c.is_known and applies(c, number)]
    for delivery in group.deliveries:
        begun = max((call for call in made if call.t0 <= delivery.t1), key=by_t1, default=None)
        mine = ends if begun is None else [end for end in ends if end.t0 > begun.t1]
        if mine and delivery.t0 > (ended := min(mine, key=by_t1)).t1:
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
    by_hand = sum(1 for run in calls.runs.values() if run.t0 < span.ended_ms) + calls.unknown_runs
    for instant_ms in islice(_owed(span, end_ms, context), _count_left(span, by_hand)):
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


def _count_left(span: Span, by_hand: int) -> int | None:
    """How many more firings a schedule with a `count` owes; None = it has none."""
    count = span.answer.get("count")
    return None if count is None else max(count - span.answer["n"] - by_hand, 0)


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
