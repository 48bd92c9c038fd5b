"""Settings and results of a check, and the verdict as text and as JSON, with the same contents.

A report stays small however broken the history is: each rule counts all its violations and keeps
only the first few as examples. The names of the JSON members are a public contract: programs read
them.

Rule I states how late deliveries came, as quantiles of a histogram of bounded size. Lateness is
counted to the millisecond up to 4,095 ms and to better than 0.1 % above, so that any number of
deliveries fits into a few thousand counters. Negative lateness (the clocks disagree) is counted
too. A quantile is the smallest counted value that at least the given share does not exceed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

# ---------------------------------------------------------------------------- lateness (rule I)

QUANTILES = (0.5, 0.9, 0.99, 0.999)
_EXACT_BITS = 12


class Lateness:
    """A histogram of whole milliseconds."""

    __slots__ = ("_counts", "max_ms")

    def __init__(self, values_ms: Iterable[int] = ()) -> None:
        self._counts: dict[int, int] = {}
        self.max_ms = 0
        for value_ms in values_ms:
            self.add(value_ms)

    def add(self, value_ms: int) -> None:
        """Count one delivery."""
        if value_ms > self.max_ms or not self._counts:
            self.max_ms = value_ms
        if not -(1 << _EXACT_BITS) < value_ms < 1 << _EXACT_BITS:
            # Keep the leading 12 bits: 1,234,567 ms counts as 1,234,432 ms.
            shift = value_ms.bit_length() - _EXACT_BITS
            value_ms = value_ms >> shift << shift
        self._counts[value_ms] = self._counts.get(value_ms, 0) + 1

    @property
    def count(self) -> int:
        """How many deliveries were counted."""
        return sum(self._counts.values())

    def quantile(self, share: float) -> int:
        """The lateness that `share` of the deliveries do not exceed; 0 if there are none."""
        wanted = share * self.count
        seen = 0
        for value_ms in sorted(self._counts):
            seen += self._counts[value_ms]
            if seen >= wanted:
                return value_ms
        return 0

    def summary(self) -> dict[str, int]:
        """Count, quantiles and maximum, named as in the JSON report."""
        names = {f"p{share * 100:g}_ms": self.quantile(share) for share in QUANTILES}
        return {"count": self.count, **names, "max_ms": self.max_ms}


# ------------------------------------------------------------------------ settings and findings

RULES = {
    "A": "every acknowledged send is delivered, cancelled or expired by its due time + bound",
    "B": "nothing is delivered before its due time",
    "C": "duplicates only after a nack, an expired lease, a kill or a failover; none after an ack",
    "D": "nothing is delivered after an acknowledged cancel",
    "E": "after an acknowledged reschedule only the last due time counts",
    "F": "a key never has two open leases",
    "G": "messages of a key are processed in order",
    "H": "an id names at most one living message",
    "I": "lateness (measured, not judged)",
    "J": "nothing is delivered that was not sent, and nothing altered",
    "K": "each instant of a schedule has exactly one message",
}
"""The rules by letter, in the words of the report."""

EXAMPLES_MAX = 20
"""Violations kept as examples for each rule, enough to show a pattern. All are counted."""


def parse_rules(text: str) -> frozenset[str]:
    """Parse `A,B,…`. Raises ValueError that names unknown rules."""
    chosen = frozenset(part.strip().upper() for part in text.split(",") if part.strip())
    unknown = sorted(chosen - set(RULES))
    if unknown or not chosen:
        raise ValueError(f"no such rule: {', '.join(unknown) or 'none given'} (A to K)")
    return chosen


BOUND_MS = 5_000
LEASE_MS = 30_000
SLACK_MS = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """How a history is checked. The defaults suit a broker on the clients' machine."""

    bound_ms: int = BOUND_MS
    """Rule A: a message must be delivered within this time after it is due. If receives may time
    out, choose more than a lease: messages of a lost answer return only when their lease ends."""
    lease_ms: int = LEASE_MS
    """Length of a lease whose record states none."""
    slack_ms: int = SLACK_MS
    """Greatest difference between the time of a mark and the event itself."""
    repeat_bound_ms: int | None = None
    """Rule C: a kill or failover may cause repeats only of deliveries made within this time before
    it; None = no bound."""
    rules: frozenset[str] = frozenset(RULES)

    def __post_init__(self) -> None:
        for name in ("bound_ms", "lease_ms", "slack_ms", "repeat_bound_ms"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} is negative: {value}")
        unknown = sorted(self.rules - set(RULES))
        if unknown:
            raise ValueError(f"no such rule: {', '.join(unknown)} (A to K)")


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation: the message, its time by the client's clock, and the contradiction."""

    rule: str
    id: str
    t_ms: int
    text: str


@dataclass(slots=True)
class RuleFindings:
    """Counts of one rule. `checked` = how often it could have been broken: 0 proves nothing."""

    checked: int = 0
    violations: int = 0
    examples: list[Violation] = field(default_factory=list)


@dataclass(slots=True)
class Fates:
    """How the messages with an acknowledged send ended.

    Each message has one fate. `acked` counts messages with an acknowledged ack besides.
    """

    acknowledged: int = 0
    acked: int = 0
    delivered: int = 0
    cancelled: int = 0
    expired: int = 0
    dead: int = 0
    unseen: int = 0
    not_due: int = 0
    lost: int = 0


@dataclass(slots=True)
class CheckReport:
    """The verdict on one history."""

    settings: CheckSettings
    items: int = 0
    ids: int = 0
    first_ms: int = 0
    last_ms: int = 0
    end_ms: int = 0
    has_end_mark: bool = False
    calls: dict[str, dict[str, int]] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    rules: dict[str, RuleFindings] = field(default_factory=dict)
    fates: Fates = field(default_factory=Fates)
    duplicates: dict[str, int] = field(default_factory=dict)
    repeated_span_ms_max: int = 0
    lateness: dict[str, Lateness] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether no chosen rule was broken."""
        return not any(findings.violations for findings in self.rules.values())

    @property
    def broken(self) -> list[str]:
        """The letters of the broken rules."""
        return [rule for rule, findings in self.rules.items() if findings.violations]


class Findings:
    """Collects what the rules find; findings of rules that were not chosen are dropped."""

    __slots__ = ("_by_rule",)

    def __init__(self, rules: Iterable[str]) -> None:
        self._by_rule = {rule: RuleFindings() for rule in sorted(rules)}

    def checked(self, rule: str, count: int = 1) -> None:
        """Count occasions at which the rule could have been broken."""
        findings = self._by_rule.get(rule)
        if findings is not None:
            findings.checked += count

    def violated(self, rule: str, name: str, t_ms: int, text: str) -> None:
        """Count a violation, and keep it if it is among the first."""
        findings = self._by_rule.get(rule)
        if findings is None:
            return
        findings.violations += 1
        if len(findings.examples) < EXAMPLES_MAX:
            findings.examples.append(Violation(rule, name, t_ms, text))

    @property
    def by_rule(self) -> dict[str, RuleFindings]:
        """The findings of each rule, in the order of the letters."""
        return self._by_rule


# ---------------------------------------------------------------------------------- the verdict


def report_json(report: CheckReport) -> bytes:
    """One JSON object, indented, with a newline at its end."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(report_object(report), option=options)


def report_object(report: CheckReport) -> dict[str, Any]:
    """The report as plain dictionaries, lists and numbers."""
    settings = asdict(report.settings)
    settings["rules"] = sorted(report.settings.rules)
    rules = {
        rule: {
            "says": RULES[rule],
            "checked": findings.checked,
            "violations": findings.violations,
            "examples": [asdict(violation) for violation in findings.examples],
        }
        for rule, findings in report.rules.items()
    }
    return {
        "holds": report.holds,
        "broken": report.broken,
        "settings": settings,
        "items": report.items,
        "ids": report.ids,
        "first_ms": report.first_ms,
        "last_ms": report.last_ms,
        "end_ms": report.end_ms,
        "has_end_mark": report.has_end_mark,
        "calls": report.calls,
        "marks": report.marks,
        "rules": rules,
        "fates": asdict(report.fates),
        "duplicates": report.duplicates,
        "repeated_span_ms_max": report.repeated_span_ms_max,
        "lateness": {name: late.summary() for name, late in report.lateness.items()},
    }


def report_text(report: CheckReport) -> str:
    """A page for people; the last line is the verdict."""
    lines = [
        f"history  {report.items:,} calls and marks of {report.ids:,} ids, "
        f"{_time(report.first_ms)} to {_time(report.last_ms)}"
    ]
    for op, outcomes in report.calls.items():
        counted = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
        lines.append(f"  {op:<11}{counted}")
    if report.marks:
        counted = ", ".join(f"{count} {kind}" for kind, count in report.marks.items())
        lines.append(f"  {'marks':<11}{counted}")
    if not report.has_end_mark:
        lines.append("  there is no end mark: the last answer counts as the end")
    lines += ["", f"  {'checked':>11} {'violations':>11}"]
    for rule, findings in report.rules.items():
        broken = f"{findings.violations:,}" if findings.violations else "-"
        lines.append(f"{rule} {findings.checked:>11,} {broken:>11}  {RULES[rule]}")
    fates = {name: count for name, count in asdict(report.fates).items() if count}
    lines += ["", "sends       " + _counted(fates)]
    duplicates = {cause: count for cause, count in report.duplicates.items() if count}
    lines.append("duplicates  " + _counted(duplicates))
    if report.repeated_span_ms_max:
        lines.append(f"  the oldest was made {report.repeated_span_ms_max:,} ms before its fault")
    for name, late in report.lateness.items():
        if late.count:
            summary = late.summary()
            counted = ", ".join(f"{key.removesuffix('_ms')} {summary[key]:,}" for key in summary)
            lines.append(f"lateness    {name}, ms: {counted}")
    for findings in report.rules.values():
        if findings.violations:
            lines.append("")
        lines += [f"{v.rule}: {v.id!r} at {_time(v.t_ms)}: {v.text}" for v in findings.examples]
        if findings.violations > len(findings.examples):
            lines.append(f"   … and {findings.violations - len(findings.examples):,} more")
    verdict = f"violated: {', '.join(report.broken)}" if report.broken else "holds"
    return "\n".join([*lines, "", verdict, ""])


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "none"


def _time(t_ms: int) -> str:
    """A wall-clock time in UTC, or the plain number where a history counts from its own zero."""
    try:
        moment = datetime.fromtimestamp(t_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{t_ms} ms"
    if moment.year < 2000:
        return f"{t_ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{t_ms % 1000:03d}Z"
