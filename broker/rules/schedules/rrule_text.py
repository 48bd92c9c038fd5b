"""The parts of a recurrence rule, their bounds, and which of them go together.

A part that the rules of RFC 5545 forbid beside a frequency is an error here, never ignored.
`ical_text.py` reads the lines around a rule.
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final

from delaylog.broker.rules.schedules.ical_text import ICalendar, Stamp, wrong

WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
MONTHS_ALL: Final = tuple(range(1, 13))
INTERVALS_MAX: Final = {
    "SECONDLY": 366 * 86_400,
    "MINUTELY": 366 * 1_440,
    "HOURLY": 366 * 24,
    "DAILY": 366,
    "WEEKLY": 366,
    "MONTHLY": 366,
    "YEARLY": 40,
}
"""Frequencies, and the longest interval of each."""
UNITS_S: Final = {"SECONDLY": 1, "MINUTELY": 60, "HOURLY": 3_600}
"""Frequencies below a day, in seconds."""
COUNT_MAX: Final = 10_000
"""Instances of a rule that COUNT may demand: they are counted from its start, in 50 ms."""
TIMES_MAX: Final = 1_440
"""Times a day."""
_NUMBERS: Final = {
    "BYMONTH": range(1, 13),
    "BYMONTHDAY": range(1, 32),
    "BYYEARDAY": range(1, 367),
    "BYHOUR": range(24),
    "BYMINUTE": range(60),
    "BYSECOND": range(60),
    "BYSETPOS": range(1, 367),
}
_SIGNED: Final = ("BYMONTHDAY", "BYYEARDAY", "BYSETPOS")
_KNOWN: Final = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_NUMBERS)
_ELSEWHERE: Final = {
    "BYWEEKNO": (
        "of the weeks 2 to 51, a Monday is BYDAY=MO with the seven BYYEARDAY from 7 x week - 9 on "
        "(BYWEEKNO=20: 131 to 137), a Tuesday is BYDAY=TU with those from 7 x week - 8 on, and on"
    ),
    "BYEASTER": "it is no part of RFC 5545: send a message for each year with deliver_at_ms",
    "RSCALE": "rules are of the Gregorian calendar",
    "SKIP": "rules are of the Gregorian calendar; a date that a month does not have is left out",
}
_WEEKDAY: Final = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that is consistent. Empty tuples: the part is absent."""

    frequency: str
    interval: int = 1
    week_start: int = 0
    """0 is Monday."""
    months: tuple[int, ...] = ()
    days: tuple[int, ...] = ()
    """Days of the month; negative ones count from its end."""
    weekdays: frozenset[tuple[int, int]] = frozenset()
    """(n, weekday): the n-th of the month or year, negative from its end; n = 0: each."""
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    seconds: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    yeardays: tuple[int, ...] = ()
    """Days of the year; negative ones count from its end."""
    count: int | None = None
    """Number of instances from the start on."""
    until: Stamp | None = None
    """The last instance is not after it."""
    excluded: frozenset[Stamp] = frozenset()
    """EXDATE: instances that are left out; COUNT counts them."""

    @property
    def times_a_day(self) -> int:
        """Number of times of each of its days; below a day, at most."""
        minutes, seconds = len(self.minutes) or 1, len(self.seconds) or 1
        unit_s = UNITS_S.get(self.frequency)
        if unit_s is None:
            return (len(self.hours) or 1) * minutes * seconds
        each = {3_600: minutes * seconds, 60: seconds, 1: 1}[unit_s]
        return -(-86_400 // (unit_s * self.interval)) * each

    @property
    def last_wall(self) -> datetime | None:
        """The wall time of UNTIL, if it is one: a date is its last second."""
        if self.until is None or self.until.utc:
            return None
        return self.until.at + (_LAST_SECOND if self.until.date else timedelta(0))

    @property
    def last_s(self) -> int | None:
        """The instant of UNTIL, if it is one."""
        return self.until.instant_s if self.until is not None and self.until.utc else None

    def has_date(self, day: date) -> bool:
        """Whether BYMONTH, BYMONTHDAY and BYYEARDAY have a day."""
        if self.months and day.month not in self.months:
            return False
        if self.days and day.day not in self.days:
            from_end = day.day - monthrange(day.year, day.month)[1] - 1
            if from_end not in self.days:
                return False
        if self.yeardays:
            at = day.timetuple().tm_yday
            from_end = at - (366 if isleap(day.year) else 365) - 1
            return at in self.yeardays or from_end in self.yeardays
        return True

    def places(self, size: int) -> list[int]:
        """The places of BYSETPOS among `size` times or dates, ascending."""
        places = {each - 1 if each > 0 else size + each for each in self.positions}
        return sorted(each for each in places if 0 <= each < size)

    def leaves_out(self, wall: datetime) -> bool:
        """Whether EXDATE names the wall time, or its day."""
        out = self.excluded
        return Stamp(wall) in out or Stamp(day_of(wall), date=True) in out


_LAST_SECOND: Final = timedelta(seconds=86_399)


def day_of(wall: datetime) -> datetime:
    """The midnight at which the day of a wall time begins."""
    return wall.replace(hour=0, minute=0, second=0)


@lru_cache(maxsize=4_096)
def parsed_rrule(text: str) -> Rule:
    """The rule; equal texts share it. Raises MemberError that names `rrule`."""
    lines = ICalendar.read(text)
    if lines.start is not None:
        raise wrong("DTSTART is the member start_ms here")
    rule = _rule(dict(lines.parts))
    return replace(rule, excluded=frozenset(lines.excluded))


def _rule(parts: dict[str, str]) -> Rule:
    frequency = parts.pop("FREQ", None)
    if frequency is None:
        raise wrong("it has no FREQ: a rule is FREQ=WEEKLY;BYDAY=MO,WE, for instance")
    if frequency not in INTERVALS_MAX:
        raise wrong(f"FREQ must be one of {', '.join(INTERVALS_MAX)}, not {frequency}")
    interval = _number("INTERVAL", parts.pop("INTERVAL", "1"))
    if not 1 <= interval <= INTERVALS_MAX[frequency]:
        raise wrong(f"INTERVAL must lie from 1 to {INTERVALS_MAX[frequency]}, not {interval}")
    week_start = parts.pop("WKST", "MO")
    if week_start not in WEEKDAYS:
        raise wrong(f"WKST must be one of {', '.join(WEEKDAYS)}, not {week_start}")
    weekdays = _weekdays(parts.pop("BYDAY", ""))
    numbers = {name: _numbers(name, parts.pop(name, "")) for name in _NUMBERS}
    count, until = parts.pop("COUNT", None), parts.pop("UNTIL", None)
    if count is not None and until is not None:
        raise wrong("COUNT and UNTIL exclude each other (RFC 5545): leave one out")
    instances = None if count is None else _number("COUNT", count)
    if instances is not None and not 1 <= instances <= COUNT_MAX:
        raise wrong(
            f"COUNT must lie from 1 to {COUNT_MAX}, not {instances}: give UNTIL, the time of the "
            "last instance"
        )
    for name in parts:
        hint = _ELSEWHERE.get(name, f"known are {', '.join(_KNOWN)}")
        raise wrong(f"{name} is not supported: {hint}")
    rule = Rule(
        frequency,
        interval,
        WEEKDAYS.index(week_start),
        months=numbers["BYMONTH"],
        days=numbers["BYMONTHDAY"],
        weekdays=weekdays,
        hours=numbers["BYHOUR"],
        minutes=numbers["BYMINUTE"],
        seconds=numbers["BYSECOND"],
        positions=numbers["BYSETPOS"],
        yeardays=numbers["BYYEARDAY"],
        count=instances,
        until=None if until is None else Stamp.read("UNTIL", until),
    )
    _check_together(rule)
    return rule


def _check_together(rule: Rule) -> None:
    if rule.frequency == "WEEKLY" and rule.days:
        raise wrong("BYMONTHDAY does not go with FREQ=WEEKLY")
    if rule.frequency in ("DAILY", "WEEKLY", "MONTHLY") and rule.yeardays:
        raise wrong(f"BYYEARDAY does not go with FREQ={rule.frequency}")
    if rule.frequency not in ("MONTHLY", "YEARLY") and any(nth for nth, _ in rule.weekdays):
        raise wrong(f"BYDAY has no numbers with FREQ={rule.frequency}")
    nth_max = 53 if rule.frequency == "YEARLY" and not rule.months else 5
    if any(abs(nth) > nth_max for nth, _ in rule.weekdays):
        raise wrong(f"BYDAY has numbers up to {nth_max} here")
    if rule.frequency not in UNITS_S and rule.times_a_day > TIMES_MAX:
        times = rule.times_a_day
        raise wrong(
            f"a day may have at most {TIMES_MAX} times, not {times}: use cron, or FREQ=SECONDLY "
            "with parts for every limit"
        )


def _numbers(name: str, text: str) -> tuple[int, ...]:
    if not text:
        return ()
    legal = _NUMBERS[name]
    found = {_number(name, each) for each in text.split(",")}
    for number in found:
        if (abs(number) if name in _SIGNED else number) not in legal:
            raise wrong(f"{name} must lie from {legal[0]} to {legal[-1]}, not {number}")
    return tuple(sorted(found))


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", text, re.ASCII):
        raise wrong(f"{name} must be whole numbers, not {text!r}")
    return int(text)


def _weekdays(text: str) -> frozenset[tuple[int, int]]:
    if not text:
        return frozenset()
    found = set()
    for each in text.split(","):
        match = _WEEKDAY.fullmatch(each)
        if match is None or (match[1] is not None and int(match[1]) == 0):
            raise wrong(f"BYDAY must be weekdays such as MO or -1FR, not {each!r}")
        found.add((int(match[1] or 0), WEEKDAYS.index(match[2])))
    return frozenset(found)
