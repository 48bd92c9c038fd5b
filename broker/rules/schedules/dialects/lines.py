"""What a line of a dialect says, as members of a timing.

A dialect gives the six fields in our terms, and how its two fields of days go together. Where both
must match, which our cron does not say, it is the n-th weekday of a month, or a rule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from delaylog.broker.rules.schedules.dialects.fields import (
    DAY,
    MONTH,
    OUR_WEEKDAY,
    TIMES,
    WEEKDAYS,
    Field,
    RefusedError,
)
from delaylog.broker.rules.schedules.wall_clock import WallClock
from delaylog.broker.rules.schedules.zones import Zones

_TIMES_MAX: Final = 1_440
YEAR: Final = re.compile(r"(19|20)[0-9]{2}([-,/].*)?", re.ASCII)
"""A field that can only be one of years."""


@dataclass(frozen=True, slots=True)
class Line:
    """Fields in our terms."""

    times: tuple[str, ...]
    """Second, minute and hour."""
    day: str
    month: str
    weekday: str
    both: bool = False
    """Whether the day of month and the day of week must both match; False: either is enough."""

    def members(self) -> dict[str, Any]:
        """The members of a timing. Raises RefusedError."""
        day, weekday = self.day, self.weekday
        if day != "*" and weekday != "*":
            if self.both:
                nth = self._nth()
                if nth is None:
                    return self._rule()
                day, weekday = "*", nth
            elif day.startswith("*"):
                # In our cron a star means that both must match.
                day = f"1-31{day[1:]}"
        times = self.times[1:] if self.times[0] == "0" else self.times
        return {"cron": " ".join((*times, day, self.month, weekday))}

    def _nth(self) -> str | None:
        """The weekdays by number, if the days are one of the weeks of a month."""
        if any(mark in self.weekday for mark in "#L") or not _is_plain(self.day):
            return None
        days = _values(DAY, self.day)
        week = days[0] // 7 + 1
        if week > 4 or days != list(range(7 * week - 6, 7 * week + 1)):
            return None
        numbers = _values(OUR_WEEKDAY, self.weekday)
        return ",".join(f"{OUR_WEEKDAY.names[number % 7]}#{week}" for number in numbers)

    def _rule(self) -> dict[str, Any]:
        if any(mark in self.weekday for mark in "#L") or "W" in self.day:
            raise RefusedError(
                f"both {self.day} and {self.weekday} must match: put a schedule for one of them, "
                "whose consumer judges the other"
            )
        times = [_values(field, text) for field, text in zip(TIMES, self.times, strict=True)]
        seconds, minutes, hours = times
        count = len(seconds) * len(minutes) * len(hours)
        frequency = "DAILY" if count <= _TIMES_MAX else "MINUTELY"
        days = [str(_from_end(term)) for term in _day_terms(self.day)]
        weekdays = [WEEKDAYS[number % 7][:2] for number in _values(OUR_WEEKDAY, self.weekday)]
        parts: dict[str, Sequence[object]] = {
            "BYMONTH": [] if self.month == "*" else _values(MONTH, self.month),
            "BYMONTHDAY": days,
            "BYDAY": weekdays,
            "BYHOUR": hours,
            "BYMINUTE": minutes,
            "BYSECOND": seconds,
        }
        named = [f"{name}={_listed(each)}" for name, each in parts.items() if each]
        return {"rrule": ";".join([f"FREQ={frequency}", *named]), "gap": "next"}


def _listed(values: Sequence[object]) -> str:
    return ",".join(str(each) for each in values)


def _is_plain(day: str) -> bool:
    return "L" not in day and "W" not in day


def _values(field: Field, text: str) -> list[int]:
    return sorted({value for term in text.split(",") for value in field.term_values(term)})


def _day_terms(text: str) -> list[str]:
    out = []
    for term in text.split(","):
        out += [term] if "L" in term else [str(value) for value in DAY.term_values(term)]
    return list(dict.fromkeys(out))


def _from_end(term: str) -> int:
    """A day for BYMONTHDAY: the last one is -1."""
    return -1 - int(term[2:] or 0) if term.startswith("L") else int(term)


def members_of(
    fields: Sequence[str],
    day: Field,
    weekday: Field,
    zone: str,
    zones: Zones,
    *,
    both: bool = False,
) -> dict[str, Any]:
    """The members that the fields of a line say, from the second to the day of week, and perhaps
    the year behind. Dialects differ in their two fields of days only. Raises RefusedError.
    """
    declared = (*TIMES, day, MONTH, weekday)
    *times, days, month, weekdays = (
        field.ours(text) for field, text in zip(declared, fields, strict=False)
    )
    line = Line(tuple(times), days, month, weekdays, both)
    return line.members() | bounds_of_years("".join(fields[6:]), zone, zones)


YEAR_MAX: Final = 8_998


def bounds_of_years(text: str, zone: str, zones: Zones, *, first: int = 1970) -> dict[str, int]:
    """`start_ms` and `end_ms` of a field of years. Raises RefusedError."""
    if text in ("*", "?", ""):
        return {}
    found: set[int] = set()
    for term in text.split(","):
        start, dash, stop = term.partition("-")
        if not start.isdecimal() or not (stop or "0").isdecimal() or bool(dash) != bool(stop):
            raise RefusedError(f"the years {text!r} are no range: put a schedule for each year")
        years = range(int(start), int(stop or start) + 1)
        if not first <= years.start <= years.stop <= YEAR_MAX + 1:
            raise RefusedError(f"a year must lie from {first} to {YEAR_MAX}, not {text!r}")
        found |= set(years)
    if not found or max(found) - min(found) + 1 != len(found):
        raise RefusedError(f"the years {text!r} are no range: put a schedule for each range")
    clock = WallClock(zones.zone(zone))
    return {
        "start_ms": clock.instant(datetime(min(found), 1, 1)) * 1_000,  # noqa: DTZ001
        "end_ms": clock.instant(datetime(max(found) + 1, 1, 1)) * 1_000,  # noqa: DTZ001
    }


def written(members: Mapping[str, Any]) -> str:
    """Members as a person writes them."""
    return ", ".join(f"{name} {value!r}" for name, value in members.items())


def fields_of(text: str, counts: Sequence[int], what: str) -> list[str]:
    """The fields of a line. Raises RefusedError."""
    fields = text.upper().split()
    if len(fields) not in counts:
        named = " or ".join(map(str, counts))
        raise RefusedError(f"it has {len(fields)} fields, not {named}: {what}")
    return fields
