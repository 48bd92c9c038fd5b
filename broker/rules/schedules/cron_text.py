"""The text of a cron expression: checks whose errors name the field, its value and its bounds.

cronsim parses the expressions. It is more lenient (a step of 90 minutes would fire hourly), and its
errors name a field at most. Only new expressions are checked here: those of a log are parsed as
they are.
"""

from __future__ import annotations

import re
from typing import Final

from delaylog.broker.rules.schedules.dialects.fields import DAY, MONTH, OUR_WEEKDAY, TIMES, Field
from delaylog.broker.rules.schedules.dialects.table import readings
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.contract.errors import MemberError

_FIELDS: Final = (*TIMES, DAY, MONTH, OUR_WEEKDAY)
_ALSO: Final = {
    "day of month": ", L or LW",
    "month": ", or JAN to DEC",
    "day of week": " (0 and 7 are Sunday), or SUN to SAT",
}
"""What a field may have that is no number."""
_STEPS_MS: Final = {
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day of month": 86_400_000,
}
"""What a step of one is as an interval."""
NEAR_DAY: Final = re.compile(r"L-([1-9]|[12][0-9]|30)(W?)|([1-9]|[12][0-9]|3[01])W", re.ASCII)
"""Days from the end of a month, and weekdays that are nearest to a day."""
_WHOLE: Final = (
    "five are minute, hour, day of month, month and day of week; a sixth, first, is the second"
)


def check_cron(text: str, zone: str = "UTC", zones: Zones = PACKAGED) -> None:
    """Raises MemberError that names `cron`. What passes, cronsim or `cron.py` can parse.

    The error of a line that another scheduler may have names it, and says what to write.
    """
    problem = _problem_of(text)
    if problem:
        known = readings(text, zone, zones)
        if known and (problem.startswith("it has") or re.search("[@(=]", text)):
            # Its fields are those of another dialect.
            problem = ""
        raise wrong(text, "; ".join(each for each in (problem, known) if each))


def _problem_of(text: str) -> str:
    fields = text.upper().split()
    if len(fields) not in (5, 6):
        return f"it has {len(fields)} fields, not 5 or 6: {_WHOLE}"
    for field, value in zip(_FIELDS[-len(fields) :], fields, strict=True):
        for term in value.split(","):
            problem = _problem(field, term, alone=term == value)
            if problem:
                return f"{field.name} {problem}"
    return ""


def wrong(text: str, problem: str) -> MemberError:
    """The error of an expression."""
    what = f"{text!r} is not valid: {problem}"
    return MemberError(f"cron {what}", field="cron", what=what)


def _problem(field: Field, term: str, *, alone: bool) -> str:
    """What is wrong with one term of a field; empty: nothing. `alone`: it is the only one."""
    if "?" in term:
        return "has no '?'"
    body, slash, step = term.partition("/")
    if slash and (problem := _step_problem(field, step, alone=alone and body == "*")):
        return problem
    if body == "*" or (field.name == "day of month" and body in ("L", "LW")):
        return ""
    if field.name == "day of month" and ("W" in body or "L" in body):
        if not slash and NEAR_DAY.fullmatch(body):
            return ""
        return f"has no {term!r}: write L, LW, L-1 to L-30, L-3W or 15W"
    if field.name == "day of week" and not slash:
        if body.endswith("L") and body[:-1].isdecimal():
            return _value_problem(field, body[:-1])
        body, found, nth = body.partition("#")
        if found:
            return _value_problem(field, body) or (
                "" if nth in ("1", "2", "3", "4", "5") else f"has #1 to #5, not #{nth}"
            )
    if field.name == "day of week" and body == "7-0":
        return f"{body} is Sunday alone or the whole week: write SUN or *"
    first, dash, last = body.partition("-")
    if not dash:
        return _value_problem(field, body)
    problem = _value_problem(field, first) or _value_problem(field, last)
    if not problem and _number(field, first) > _number(field, last):
        return f"{body} goes backwards"
    return problem


def _step_problem(field: Field, step: str, *, alone: bool) -> str:
    most = field.last - field.first
    if re.fullmatch(r"[0-9]{1,9}", step, re.ASCII) and 1 <= int(step) <= most:
        return ""
    problem = f"must have a step from 1 to {most}, not {step!r}"
    step_ms = _STEPS_MS.get(field.name)
    if alone and re.fullmatch(r"[0-9]{1,9}", step, re.ASCII) and int(step) > most and step_ms:
        problem += f" (steps begin again with each range; {int(step)} {field.name.split()[0]}s of "
        problem += f"elapsed time are interval_ms {int(step) * step_ms})"
    return problem


def _value_problem(field: Field, value: str) -> str:
    if value in field.names:
        return ""
    if re.fullmatch(r"[0-9]{1,9}", value, re.ASCII) and field.first <= int(value) <= field.last:
        return ""
    return f"must lie from {field.first} to {field.last}{_ALSO.get(field.name, '')}, not {value!r}"


def _number(field: Field, value: str) -> int:
    return field.names.index(value) + field.first if value in field.names else int(value)
