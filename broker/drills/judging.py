"""The verdict of a drill: what was lost, early or repeated beyond the bound, and how long it took.

`delaylog check` judges the history as a whole. What it cannot know is judged here: a repeat is
excused by one fault only, and only for what the old leader handed out in its last 50 ms; a planned
hand-over excuses none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, Final

from delaylog.broker.drills.deliveries import Deliveries
from delaylog.broker.drills.load import LEASE_MS, Load
from delaylog.broker.drills.rounds import NOT_LOOKED_FOR, Round
from delaylog.broker.history import CheckReport, CheckSettings, check_files
from delaylog.replication.timing import Timing

WINDOW_MS: Final = Timing().gate_ms + 1
"""The gate, and a millisecond since stated times are whole ones."""
RULES: Final = frozenset("ABCDEHJ")
"""No keys here."""


@dataclass(slots=True)
class Verdict:
    """What a drill found."""

    checked: CheckReport
    rounds: Sequence[Round]
    lost: int
    early: int
    duplicates: int
    over_bound: list[str] = field(default_factory=list)
    """Repeats that nothing excuses."""
    broken: list[str] = field(default_factory=list)
    """Everything else that is wrong; empty together with the rest, it holds."""

    @property
    def holds(self) -> bool:
        """Whether every invariant held."""
        return not (self.lost or self.early or self.over_bound or self.broken)


def judge(
    history: Path, load: Load, rounds: Sequence[Round], *, whole: bool, clock_steps: bool
) -> Verdict:
    """Read the history, and blame each repeat on its round.

    `whole` = all was drained; of a drill that broke off nobody knows what was lost.
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
            verdict.broken.append(f"rule {rule}: {findings.violations:,} in all")
    return verdict


def blame(deliveries: Deliveries, rounds: Sequence[Round]) -> list[str]:
    """Blame each repeat on the fault before its second delivery; what nothing excuses."""
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
            over.append(f"{repeat.id} was repeated before any fault: {repeat}")
            continue
        one = before[-1]
        strike = one.strike
        one.duplicates += 1
        last_ms = deliveries.last_handed_ms(strike.node, 0.0, strike.leader_ms)
        span_ms = 0 if last_ms is None else last_ms - repeat.first_ms
        one.farthest_ms = max(one.farthest_ms, span_ms)
        number = rounds.index(one) + 1
        text = (
            f"{repeat.id} was handed out {span_ms} ms before the last hand-out of node "
            f"{strike.node} and again {repeat.second_ms - strike.fault_ms:.0f} ms after the fault, "
            f"round {number}"
        )
        if strike.planned or not strike.disturbs:
            over.append(f"{text}, which was planned" if strike.planned else text)
        elif span_ms > WINDOW_MS:
            over.append(text)
    for number, one in enumerate(rounds, 1):
        if one.duplicates > one.allowed and not (one.strike.planned or not one.strike.disturbs):
            over.append(f"round {number}: {one.duplicates} repeats of {one.allowed} allowed")
    return over


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and maximum."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        "median": round(_at(ordered, 0.5), 1),
        "p95": round(_at(ordered, 0.95), 1),
        "max": round(ordered[-1], 1),
    }


def _at(ordered: Sequence[float], share: float) -> float:
    """The value that so large a share of the values is not above."""
    return ordered[max(ceil(share * len(ordered)) - 1, 0)]


def figures(rounds: Sequence[Round]) -> dict[str, Any]:
    """The times and counts of rounds, each as median, p95 and maximum."""
    planned = [one for one in rounds if one.strike.planned]
    # Of a planned one the pause counts: its fault begins long before anything stops.
    again = [one.again for one in rounds if one.again is not None and one not in planned]
    found: dict[str, Any] = {
        "serving_ms": spread([each.serving_ms for each in again]),
        "send_ms": spread([each.sent_ms for each in again]),
        "delivery_ms": spread([each.delivered_ms for each in again]),
        "duplicates": spread([one.duplicates for one in rounds]),
        "handed_out_in_50_ms": spread([one.allowed for one in rounds]),
        "farthest_repeat_ms": spread([one.farthest_ms for one in rounds]),
        "catch_up_ms": spread([one.catch_up_s * 1000 for one in rounds]),
    }
    silent = [one for one in rounds if one.silence_ms != NOT_LOOKED_FOR]
    if silent:
        found["send_pause_ms"] = spread([one.silence_ms[0] for one in silent])
        found["delivery_pause_ms"] = spread([one.silence_ms[1] for one in silent])
    if planned:
        drifts = [one.drift for one in planned if one.drift is not None]
        found["tick_drift"] = spread(drifts)
    return found
