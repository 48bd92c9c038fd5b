"""Rule K, first half: what the recorded calls of one schedule allow, and what they demand.

An answer states `next_ms`: the broker has decided every instant before it. So between two answers
about one timing the broker's own words say which instants are due a message, whatever its clock
did. Where a span ends otherwise (a pause, a change, a deletion, a lost answer, the end of the
history), the clients' clock decides, unless the broker's was stepped.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from delaylog.broker.history.events import FOREVER
from delaylog.broker.history.life import Context
from delaylog.broker.history.model import ScheduleCall

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
    lines = sorted(calls, key=lambda call: (call.t1, call.t0))
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
