"""EventBridge of AWS: `cron(minutes hours day-of-month month day-of-week year)`, rate, at.

Sunday is 1, one of the two days is `?`, and a time that the clocks skip does not fire (User Guide
of EventBridge Scheduler, "Schedule types").
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from delaylog.broker.rules.schedules.dialects.fields import JAVA_WEEKDAY, Field, RefusedError
from delaylog.broker.rules.schedules.dialects.lines import YEAR, fields_of, members_of
from delaylog.broker.rules.schedules.wall_clock import WallClock
from delaylog.broker.rules.schedules.zones import Zones

WHAT: Final = "minutes, hours, day of month, month, day of week and year"
_CALL: Final = re.compile(r"(cron|rate|at)\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_DAY: Final = Field("day of month", 1, 31, special=frozenset({"L", "nW"}))
_UNITS_MS: Final = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


def is_line(text: str) -> bool:
    """Whether a text has a form of EventBridge that is not ours."""
    if _CALL.fullmatch(text.strip()):
        return True
    fields = text.split()
    return len(fields) == 6 and ("?" in (fields[2], fields[4]) or bool(YEAR.fullmatch(fields[5])))


def convert(text: str, zone: str, zones: Zones) -> dict[str, Any]:
    """The members of a timing. Raises RefusedError."""
    call = _CALL.fullmatch(text.strip())
    kind, inside = ("cron", text) if call is None else (call[1].lower(), call[2])
    if kind == "rate":
        return _rate(inside)
    if kind == "at":
        return _at(inside, zone, zones)
    fields = fields_of(inside, (6,), WHAT)
    minute, hour, day, _, weekday, _ = fields
    if "?" not in (day, weekday) and "*" not in (day, weekday):
        raise RefusedError("one of the day of month and the day of week must be '?'")
    members = members_of(["0", *fields], _DAY, JAVA_WEEKDAY, zone, zones)
    elapsed = minute.startswith("*") or hour.startswith("*")
    return members if zone == "UTC" or elapsed else {**members, "gap": "skip"}


def _rate(inside: str) -> dict[str, Any]:
    match = re.fullmatch(r"([0-9]{1,9})\s+(minute|hour|day)s?", inside.strip().lower(), re.ASCII)
    if match is None or int(match[1]) < 1:
        raise RefusedError(f"a rate is a number and minutes, hours or days, not {inside!r}")
    return {"interval_ms": int(match[1]) * _UNITS_MS[match[2]]}


def _at(inside: str, zone: str, zones: Zones) -> dict[str, Any]:
    try:
        at = datetime.strptime(inside.strip(), "%Y-%m-%dT%H:%M:%S")  # noqa: DTZ007
    except ValueError:
        raise RefusedError(f"at has a time such as 2027-01-31T09:00:00, not {inside!r}") from None
    start_ms = WallClock(zones.zone(zone)).instant(at) * 1_000
    return {"rrule": "FREQ=DAILY;COUNT=1", "start_ms": start_ms}
