"""The verdict of a drill: what was lost, early or repeated beyond the bound, and how long it took.

The checker of `delaylog check` judges the whole history. This module adds a stricter rule about
repeats: an unplanned fault excuses only repeats of what the old leader delivered in its last 50 ms,
and a planned handover excuses none. The result is an object for `--json`, and text with a table for
people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, Final

from delaylog.broker.drills.load import LEASE_MS, Load
from delaylog.broker.drills.node_watch import growth_faults
from delaylog.broker.drills.rounds import Round
from delaylog.broker.drills.timeline import Deliveries
from delaylog.broker.history import CheckReport, CheckSettings, check_files
from delaylog.replication.replica import Timing

# -------------------------------------------------------------------------------------- judging

WINDOW_MS: Final = Timing().gate_ms + 1
"""The gate, plus one because stated times are whole milliseconds."""
RULES: Final = frozenset("ABCDEHJ")
"""The rules to check. F and G are about keys, which the load does not send; I is never judged."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a drill demands besides the promises. Pauses are the longest of a round, see `Round`."""

    pause_ms: float | None = None
    """The longest pause of sends; a longer one breaks the drill."""
    quiet_ms: tuple[float, float] | None = None
    """99th percentile and maximum of the pauses of sends on a quiet machine. A miss is named, but
    breaks nothing, as a busy machine is slower."""
    growth: float | None = None
    """The share by which what a process holds may grow from the first round to the last one."""


@dataclass(slots=True)
class Verdict:
    """The findings of a drill."""

    checked: CheckReport
    rounds: Sequence[Round]
    lost: int
    early: int
    duplicates: int
    over_bound: list[str] = field(default_factory=list)
    """Repeats that no fault excuses."""
    broken: list[str] = field(default_factory=list)
    """Everything else that is wrong."""
    missed: list[str] = field(default_factory=list)
    """Targets for a quiet machine that were missed."""

    @property
    def holds(self) -> bool:
        """Whether every invariant held."""
        return not (self.lost or self.early or self.over_bound or self.broken)


def judge(
    history: Path,
    load: Load,
    rounds: Sequence[Round],
    limits: Limits,
    *,
    whole: bool,
    clock_steps: bool,
) -> Verdict:
    """Check the history and the limits, and attribute each repeat to a round.

    `whole` = everything was drained. If the drill broke off, lost messages cannot be determined.
    """
    rules = RULES if whole else RULES - {"A"}
    settings = CheckSettings(bound_ms=0, lease_ms=LEASE_MS, rules=rules)
    checked = check_files([history], settings)
    early = checked.rules["B"].violations
    over = [] if clock_steps else blame(load.deliveries, rounds)
    verdict = Verdict(
        checked,
        rounds,
        lost=checked.fates.lost if whole else 0,
        early=early if clock_steps else max(early, load.deliveries.early),
        duplicates=len(load.deliveries.repeats),
        over_bound=over,
    )
    for rule, findings in checked.rules.items():
        verdict.broken += [f"rule {rule}: {v.id!r}: {v.text}" for v in findings.examples[:5]]
        if findings.violations > 5:
            verdict.broken.append(f"rule {rule}: {findings.violations:,} violations in all")
    verdict.broken += over_limit(rounds, limits)
    if limits.quiet_ms is not None:
        verdict.missed = missed_targets([one.silence_ms[0] for one in rounds], *limits.quiet_ms)
    return verdict


def over_limit(rounds: Sequence[Round], limits: Limits) -> list[str]:
    """A text for each limit that a round has exceeded."""
    found = []
    if limits.pause_ms is not None:
        found += [
            f"round {number}{one.strike.what and f' ({one.strike.what})'}: no send was "
            f"acknowledged for {one.silence_ms[0]:,.0f} ms; the limit is {limits.pause_ms:,.0f} ms"
            for number, one in enumerate(rounds, 1)
            if one.silence_ms[0] > limits.pause_ms
        ]
    if limits.growth is not None:
        held = [(one.strike.node, one.held) for one in rounds if one.held]
        found += growth_faults(held, limits.growth)
    return found


def missed_targets(pauses_ms: Sequence[float], p99_ms: float, max_ms: float) -> list[str]:
    """A text for each of the two targets that the pauses of sends miss."""
    found = spread(pauses_ms)
    targets = {"p99": p99_ms, "max": max_ms}
    return [
        f"{name} of the pauses of sends is {found[name]:,.0f} ms; the target on a quiet machine is "
        f"{target_ms:,.0f} ms"
        for name, target_ms in targets.items()
        if found and found[name] > target_ms
    ]


def blame(deliveries: Deliveries, rounds: Sequence[Round]) -> list[str]:
    """Attribute each repeat to the last fault before it; return the repeats without an excuse."""
    over = []
    for at, one in enumerate(rounds):
        strike = one.strike
        began_ms = rounds[at - 1].strike.fault_ms if at else 0.0
        last_ms = deliveries.last_handed_ms(strike.node, began_ms, strike.leader_ms)
        if last_ms is not None:
            one.allowed = deliveries.handed_between(strike.node, last_ms - WINDOW_MS, last_ms)
    for repeat in deliveries.repeats:
        before = [one for one in rounds if one.strike.fault_ms <= repeat.second_ms]
        if not before:
            over.append(f"{repeat.id} was delivered twice before any fault: {repeat}")
            continue
        one = before[-1]
        strike = one.strike
        one.duplicates += 1
        last_ms = deliveries.last_handed_ms(strike.node, 0.0, strike.leader_ms)
        span_ms = 0 if last_ms is None else last_ms - repeat.first_ms
        one.farthest_ms = max(one.farthest_ms, span_ms)
        number = rounds.index(one) + 1
        text = (
            f"round {number}: {repeat.id} was delivered {span_ms} ms before the last delivery of "
            f"node {strike.node}, and again {repeat.second_ms - strike.fault_ms:.0f} ms after the "
            "fault"
        )
        if strike.planned or not strike.disturbs:
            over.append(f"{text}, which was planned" if strike.planned else text)
        elif span_ms > WINDOW_MS:
            over.append(text)
    for number, one in enumerate(rounds, 1):
        if one.duplicates > one.allowed and not (one.strike.planned or not one.strike.disturbs):
            over.append(f"round {number}: {one.duplicates} repeats, {one.allowed} are allowed")
    return over


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 95th and 99th percentile, and maximum."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        "median": round(_at(ordered, 0.5), 1),
        "p95": round(_at(ordered, 0.95), 1),
        "p99": round(_at(ordered, 0.99), 1),
        "max": round(ordered[-1], 1),
    }


def _at(ordered: Sequence[float], share: float) -> float:
    """The quantile `share` of ascending values, for example 0.95."""
    return ordered[max(ceil(share * len(ordered)) - 1, 0)]


def figures(rounds: Sequence[Round]) -> dict[str, Any]:
    """The times and counts of rounds, each as in `spread`."""
    planned = [one for one in rounds if one.strike.planned]
    # A planned handover is measured by its pauses, as the old leader serves on after the request.
    again = [one.again for one in rounds if one.again is not None and one not in planned]
    found: dict[str, Any] = {
        "serving_ms": spread([each.serving_ms for each in again]),
        "send_ms": spread([each.sent_ms for each in again]),
        "delivery_ms": spread([each.delivered_ms for each in again]),
        "send_pause_ms": spread([one.silence_ms[0] for one in rounds]),
        "delivery_pause_ms": spread([one.silence_ms[1] for one in rounds]),
        "duplicates": spread([one.duplicates for one in rounds]),
        "handed_out_in_50_ms": spread([one.allowed for one in rounds]),
        "farthest_repeat_ms": spread([one.farthest_ms for one in rounds]),
        "catch_up_ms": spread([one.catch_up_s * 1000 for one in rounds]),
        "memory_mib": spread([h.memory_kib / 1024 for one in rounds for h in one.held.values()]),
    }
    if planned:
        drifts = [one.drift for one in planned if one.drift is not None]
        found["tick_drift"] = spread(drifts)
    return found


# ----------------------------------------------------------------------------------- the result

_LABELS = {
    "serving_ms": "serving again, ms",
    "send_ms": "  first send acknowledged",
    "delivery_ms": "  first delivery after it",
    "send_pause_ms": "longest pause of sends, ms",
    "delivery_pause_ms": "longest pause of deliveries, ms",
    "tick_drift": "tick drift, seconds + rows",
    "duplicates": "duplicates",
    "handed_out_in_50_ms": "  bound: delivered in 50 ms",
    "farthest_repeat_ms": "  age of the oldest repeat, ms",
    "catch_up_ms": "all nodes caught up, ms",
    "memory_mib": "memory of a node, MiB",
}


def result_object(name: str, seed: int, verdict: Verdict, notes: list[str]) -> dict[str, Any]:
    """The object that `--json` prints."""
    cases = sorted({one.strike.what for one in verdict.rounds})
    return {
        "drill": name,
        "seed": seed,
        "rounds": len(verdict.rounds),
        "holds": verdict.holds,
        "lost": verdict.lost,
        "early": verdict.early,
        "duplicates": verdict.duplicates,
        "duplicates_over_bound": len(verdict.over_bound),
        "sends_acknowledged": verdict.checked.fates.acknowledged,
        "cases": {
            case or name: figures([one for one in verdict.rounds if one.strike.what == case])
            for case in cases
        },
        "broken": [*verdict.over_bound[:20], *verdict.broken[:20]],
        "missed": verdict.missed,
        "notes": notes,
        "each": [
            {
                "case": one.strike.what or name,
                "leader": one.strike.node,
                **({"note": one.note} if one.note else {}),
                "serving_ms": None if one.again is None else round(one.again.serving_ms, 1),
                "send_pause_ms": round(one.silence_ms[0], 1),
                "duplicates": one.duplicates,
                "handed_out_in_50_ms": one.allowed,
            }
            for one in verdict.rounds
        ],
    }


def result_text(result: dict[str, Any]) -> str:
    """The text for people; its last line is the verdict."""
    lines = []
    for case, found in result["cases"].items():
        rounds = sum(each["case"] == case for each in result["each"])
        lines.append(f"{case}, {rounds} rounds".ljust(34) + _columns("median", "p95", "p99", "max"))
        for key, values in _in_order(found):
            if values:
                lines.append(f"  {_LABELS[key]:<32}" + _columns(*map(_plain, values.values())))
    lines.append("")
    lines.append(
        f"{result['sends_acknowledged']:,} messages: {result['lost']} lost, {result['early']} "
        f"early, {result['duplicates']} duplicates, {result['duplicates_over_bound']} over bound"
    )
    lines += [f"note: {text}" for text in result["notes"]]
    lines += [f"missed: {text}" for text in result["missed"]]
    lines += [f"BROKEN: {text}" for text in result["broken"]]
    lines.append("holds" if result["holds"] else "broken")
    return "\n".join(lines)


def _in_order(found: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    return [(key, found[key]) for key in _LABELS if key in found]


def _columns(*values: str) -> str:
    return "".join(f"{value:>10}" for value in values)


def _plain(value: float) -> str:
    return f"{value:,.0f}"
