"""The result of a drill: an object for `--json`, and text with a table for people."""

from __future__ import annotations

from typing import Any

from delaylog.broker.drills.judging import Verdict, figures

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
