"""croniter: `minute hour day-of-month month day-of-week [second [year]]`: the second is behind.

Either of the two days is enough, also beside a step (`day_or`); `?` is a star.
"""

from __future__ import annotations

import re
from typing import Any, Final

from delaylog.broker.rules.schedules.dialects import vixie
from delaylog.broker.rules.schedules.dialects.fields import (
    CRON_WEEKDAY,
    MONTH,
    TIMES,
    Field,
    RefusedError,
)
from delaylog.broker.rules.schedules.dialects.lines import fields_of, members_of
from delaylog.broker.rules.schedules.zones import Zones

WHAT: Final = "minute, hour, day of month, month, day of week, second and year"
_DAY: Final = Field("day of month", 1, 31, special=frozenset({"L"}))
_LAST: Final = re.compile(r"L([0-7])", re.ASCII)


def is_line(text: str) -> bool:
    """Whether a text may be one of croniter that is not ours."""
    fields = text.split()
    return len(fields) in (6, 7) and not (len(fields) > 5 and "?" in fields[3] + fields[5])


def convert(text: str, zone: str, zones: Zones) -> dict[str, Any]:
    """The members of a timing. Raises RefusedError."""
    if text.lstrip().startswith("@"):
        return vixie.convert(text, zone, zones)
    fields = fields_of(text, (5, 6, 7), WHAT)
    if any(re.search(r"(^|,)[RH](\(|$|/)", each) for each in fields):
        raise RefusedError("R and H are random times: choose one, or use jitter_ms")
    *times, weekday = fields[:5]
    for field, text in zip((*TIMES[1:], _DAY, MONTH, CRON_WEEKDAY), fields, strict=False):
        for term in text.split(","):
            body, slash, _ = term.partition("/")
            if slash and "-" in body and (values := field.term_values(body)) != sorted(values):
                raise RefusedError(
                    f"croniter counts the step of {term} in its own way: list values"
                )
    # L5 is the last Friday.
    ours = [f"{m[1]}L" if (m := _LAST.fullmatch(each)) else each for each in weekday.split(",")]
    second, *year = fields[5:] or ["0"]
    line = [second, *times, ",".join(ours), *year]
    return members_of(line, _DAY, CRON_WEEKDAY, zone, zones)
