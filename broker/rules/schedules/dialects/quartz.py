"""Quartz: `seconds minutes hours day-of-month month day-of-week [year]`, Sunday is 1.

One of the two days is `?` (documentation of CronTrigger and CronExpression). Ranges may wrap.
"""

from __future__ import annotations

from typing import Any, Final

from delaylog.broker.rules.schedules.dialects.fields import JAVA_WEEKDAY, Field, RefusedError
from delaylog.broker.rules.schedules.dialects.lines import fields_of, members_of
from delaylog.broker.rules.schedules.zones import Zones

WHAT: Final = "seconds, minutes, hours, day of month, month, day of week and, if given, year"
_DAY: Final = Field("day of month", 1, 31, special=frozenset({"L", "L-n", "LW", "nW", "L-nW"}))


def is_line(text: str) -> bool:
    """Whether a text has a form of Quartz that is not ours."""
    fields = text.split()
    return len(fields) == 7 or (len(fields) == 6 and "?" in (fields[3], fields[5]))


def convert(text: str, zone: str, zones: Zones) -> dict[str, Any]:
    """The members of a timing. Raises RefusedError."""
    fields = fields_of(text, (6, 7), WHAT)
    day, weekday = fields[3], fields[5]
    if day not in "?*" and weekday not in "?*":
        raise RefusedError("one of the day of month and the day of week must be '?'")
    for number in (29, 30, 31):
        if f"{number}W" in day.split(","):
            raise RefusedError(
                f"{number}W is not defined for shorter months: write LW for the last weekday, or "
                "a day up to 28"
            )
    return members_of(fields, _DAY, JAVA_WEEKDAY, zone, zones)
