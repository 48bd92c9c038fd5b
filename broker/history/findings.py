"""Settings and results of a check: violations, counts, the verdict.

A report stays small however broken the history is: each rule counts all its violations and keeps
only the first few as examples.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from delaylog.broker.history.lateness import Lateness

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
