"""Findings of a doctor, and the report of them for people and for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from delaylog.broker.cli.failures import DONE, WRONG
from delaylog.broker.cli.output import emit

LAG_BYTES_WARN: Final = 64 << 20
"""Half a segment of the log: a member that follows the leader lacks far less."""
GATE_MS_MAX: Final = 1_000
"""A healthy leader's rounds are acknowledged every 50 ms."""


class Mark(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    mark: Mark
    text: str
    advice: str = ""


Found: TypeAlias = Iterator[tuple[Mark, str, str]]
"""What a check yields: mark, text and advice. A check that yields nothing passes."""
_T = TypeVar("_T")
Checks: TypeAlias = tuple[tuple[str, str, Callable[[_T], Found]], ...]
"""Each check of the facts of a doctor: its name, the text if it finds nothing, and the check."""


def findings(check: str, holds: str, found: Iterable[tuple[Mark, str, str]]) -> list[Finding]:
    """The findings of one check; `holds` is the text if there are none."""
    return [Finding(check, *each) for each in found] or [Finding(check, Mark.OK, holds)]


def run_checks(checks: Checks[_T], facts: _T) -> list[Finding]:
    """The findings of all checks, in their order."""
    return [each for name, holds, check in checks for each in findings(name, holds, check(facts))]


def print_report(report: Sequence[Finding], *, as_json: bool, **facts: Any) -> int:
    """Print a report, as JSON with `facts`; returns 1 if a check has failed. Warnings do not."""
    healthy = all(finding.mark is not Mark.FAIL for finding in report)
    if as_json:
        checks = [
            {"check": each.check, "mark": each.mark, "text": each.text, "advice": each.advice}
            for each in report
        ]
        emit({**facts, "healthy": healthy, "checks": checks})
    else:
        for finding in report:
            print(f"{finding.mark.upper():<6}{finding.check:<15}{finding.text}")
            if finding.advice:
                print(f"{'':<21}{finding.advice}")
    return DONE if healthy else WRONG
