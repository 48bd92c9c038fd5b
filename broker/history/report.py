"""The verdict as text and as JSON, with the same contents.

The names of the JSON members are a public contract: programs read them.
"""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import orjson

from delaylog.broker.history.findings import RULES, CheckReport


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
