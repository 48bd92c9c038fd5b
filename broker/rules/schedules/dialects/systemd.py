"""Calendar events of systemd: `[weekdays] [year-]month-day hour:minute[:second] [zone]`.

Weekdays and dates must both match, `~` counts days from the end of a month, and what is absent is
midnight of each day (systemd.time(7)).
"""

from __future__ import annotations

import re
from typing import Any, Final

from delaylog.broker.rules.schedules.dialects.fields import MONDAY_FIRST, Field, RefusedError
from delaylog.broker.rules.schedules.dialects.lines import Line, bounds_of_years
from delaylog.broker.rules.schedules.zones import Zones

_SHORTHANDS: Final = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
}
_LONG: Final = (*("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY"),)
_WEEKDAY: Final = Field("day of week", 1, 7, MONDAY_FIRST, 1, sunday=7)
_DATE: Final = re.compile(r"(?:([^-~]+)-)?([^-~]+)([-~])([^-~]+)")
_TIME: Final = re.compile(r"([^:]+):([^:]+)(?::([^:]+))?")
_TERM: Final = re.compile(r"(\*|[0-9]+)(?:\.\.([0-9]+))?(?:/([0-9]+))?", re.ASCII)


def is_systemd_line(text: str) -> bool:
    """Whether a text is a calendar event."""
    words = text.split()
    # Fields of cron have dashes, too.
    dated = any(_DATE.fullmatch(word) and ("*" in word or len(words) == 1) for word in words)
    timed = any(re.fullmatch(r"[0-9*,./]+:[0-9*,./]+(:[0-9*,./]+)?", word) for word in words)
    short = bool(words) and len(words) < 3 and words[0].lower() in _SHORTHANDS
    return short or dated or timed or ".." in text


def from_systemd(text: str, zone: str, zones: Zones) -> dict[str, Any]:
    """The members of a timing. Raises RefusedError."""
    words = text.split()
    own = words.pop() if len(words) > 1 and words[-1] in {*zones.names, "UTC"} else None
    if own is not None and zone not in ("UTC", own):
        raise RefusedError(f"it names the zone {own}, and zone is {zone}")
    zone = own or zone
    words = _SHORTHANDS.get(" ".join(words).lower(), " ".join(words)).split()
    weekday = "*"
    if words and words[0][0].isalpha():
        weekday = _weekdays(words.pop(0))
    year, month, day, from_end = "*", "*", "*", False
    if words and (date := _DATE.fullmatch(words[0])):
        words.pop(0)
        year, month, day, from_end = date[1] or "*", date[2], date[4], date[3] == "~"
    hour, minute, second = "0", "0", "0"
    if words and (time := _TIME.fullmatch(words[0])):
        words.pop(0)
        hour, minute, second = time[1], time[2], time[3] or "0"
    if words:
        raise RefusedError(f"{words[0]!r} is no part of a calendar event")
    line = Line(
        (
            _field("second", second, 0, 59),
            _field("minute", minute, 0, 59),
            _field("hour", hour, 0, 23),
        ),
        _from_end(day) if from_end else _field("day of month", day, 1, 31),
        _field("month", month, 1, 12),
        weekday,
        both=True,
    )
    members = line.members() | bounds_of_years(year.replace("..", "-"), zone, zones)
    return members if own is None or own == "UTC" else {**members, "zone": own}


def _weekdays(text: str) -> str:
    short = re.sub(
        r"[A-Z]+",
        lambda word: word[0][:3] if word[0] in _LONG else word[0],
        text.upper().replace("..", "-"),
    )
    for term in short.split(","):
        first, _, last = term.partition("-")
        if last and _WEEKDAY.term_values(first) > _WEEKDAY.term_values(last):
            raise RefusedError(f"{term.replace('-', '..')} goes backwards")
    return _WEEKDAY.ours(short.strip(","))


def _field(name: str, text: str, first: int, last: int) -> str:
    """A field in our terms: `..` is a range, and a star begins at the first value."""
    if text == "*":
        return "*"
    field, terms = Field(name, first, last), []
    for term in text.split(","):
        match = _TERM.fullmatch(term)
        if match is None:
            raise RefusedError(f"{name} has no term {term!r}: fractions are not supported")
        start, stop, step = match.groups()
        if start == "*" and (stop or step):
            raise RefusedError(f"{name} {term!r} begins with a star: write its first value")
        if stop and int(stop) < int(start):
            raise RefusedError(f"{name} {term!r} goes backwards")
        body = f"{start}-{stop}" if stop else start
        # A number that is not in a field of ours, such as 00, is read as one.
        body = re.sub(r"[0-9]+", lambda number: str(int(number[0])), body)
        terms.append(f"{body}/{int(step)}" if step else body)
    return field.ours(",".join(terms))


def _from_end(text: str) -> str:
    """Days from the end of a month: 1 is the last one; a step goes to the end."""
    out: list[int] = []
    for term in text.split(","):
        match = _TERM.fullmatch(term)
        if match is None or match[1] == "*":
            raise RefusedError(f"~ has no term {term!r}")
        start, stop, step = int(match[1]), int(match[2] or 1), int(match[3] or 1)
        if not 1 <= stop <= start <= 31 or step < 1:
            raise RefusedError(f"~ has days from 1 to 31, the farthest first, not {text!r}")
        out += range(start, stop - 1, -step) if match[2] or match[3] else [start]
    return ",".join(f"L-{back - 1}" if back > 1 else "L" for back in dict.fromkeys(out))
