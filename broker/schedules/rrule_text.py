"""The text of a recurrence rule: its parts, their bounds, and which of them go together.

A part that the rules of RFC 5545 forbid beside a frequency is an error here, never ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from delaylog.storage.errors import MemberError

WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
MONTHS_ALL: Final = tuple(range(1, 13))
INTERVALS_MAX: Final = {"DAILY": 366, "WEEKLY": 366, "MONTHLY": 366, "YEARLY": 40}
"""Frequencies, and the longest interval of each."""
TIMES_MAX: Final = 1_440
"""Times a day."""
_NUMBERS: Final = {
    "BYMONTH": range(1, 13),
    "BYMONTHDAY": range(1, 32),
    "BYHOUR": range(24),
    "BYMINUTE": range(60),
    "BYSECOND": range(60),
    "BYSETPOS": range(1, 367),
}
_SIGNED: Final = ("BYMONTHDAY", "BYSETPOS")
_ELSEWHERE: Final = {
    "COUNT": "use the member count",
    "UNTIL": "use the member end_ms",
    "DTSTART": "use the member start_ms",
    "TZID": "use the member zone",
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

    @property
    def times_a_day(self) -> int:
        """Number of times of each of its days."""
        return (len(self.hours) or 1) * (len(self.minutes) or 1) * (len(self.seconds) or 1)


@lru_cache(maxsize=4_096)
def parsed_rrule(text: str) -> Rule:
    """The rule; equal texts share it. Raises MemberError that names `rrule`."""
    parts = _parts(text)
    frequency = parts.pop("FREQ", None)
    if frequency not in INTERVALS_MAX:
        known = ", ".join(INTERVALS_MAX)
        raise _wrong(
            f"FREQ must be one of {known}, not {frequency} (below a day: interval_ms, cron)"
        )
    interval = _number("INTERVAL", parts.pop("INTERVAL", "1"))
    if not 1 <= interval <= INTERVALS_MAX[frequency]:
        raise _wrong(f"INTERVAL must lie from 1 to {INTERVALS_MAX[frequency]}, not {interval}")
    week_start = parts.pop("WKST", "MO")
    if week_start not in WEEKDAYS:
        raise _wrong(f"WKST must be one of {', '.join(WEEKDAYS)}, not {week_start}")
    weekdays = _weekdays(parts.pop("BYDAY", ""))
    numbers = {name: _numbers(name, parts.pop(name, "")) for name in _NUMBERS}
    for name in parts:
        hint = _ELSEWHERE.get(name, "known are FREQ, INTERVAL, WKST, BYDAY, " + ", ".join(_NUMBERS))
        raise _wrong(f"{name} is not supported: {hint}")
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
    )
    _check_together(rule)
    return rule


def _check_together(rule: Rule) -> None:
    if rule.frequency == "WEEKLY" and rule.days:
        raise _wrong("BYMONTHDAY does not go with FREQ=WEEKLY")
    if rule.frequency in ("DAILY", "WEEKLY") and any(nth for nth, _ in rule.weekdays):
        raise _wrong(f"BYDAY has no numbers with FREQ={rule.frequency}")
    nth_max = 53 if rule.frequency == "YEARLY" and not rule.months else 5
    if any(abs(nth) > nth_max for nth, _ in rule.weekdays):
        raise _wrong(f"BYDAY has numbers up to {nth_max} here")
    if rule.times_a_day > TIMES_MAX:
        times = rule.times_a_day
        raise _wrong(f"a day may have at most {TIMES_MAX} times, not {times}: use cron")


def _parts(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in text.upper().removeprefix("RRULE:").split(";"):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise _wrong(f"{part!r} is no NAME=VALUE")
        if name in parts:
            raise _wrong(f"{name} occurs twice")
        parts[name] = value
    return parts


def _numbers(name: str, text: str) -> tuple[int, ...]:
    if not text:
        return ()
    legal = _NUMBERS[name]
    found = {_number(name, each) for each in text.split(",")}
    for number in found:
        if (abs(number) if name in _SIGNED else number) not in legal:
            raise _wrong(f"{name} must lie from {legal[0]} to {legal[-1]}, not {number}")
    return tuple(sorted(found))


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,4}", text, re.ASCII):
        raise _wrong(f"{name} must be whole numbers, not {text!r}")
    return int(text)


def _weekdays(text: str) -> frozenset[tuple[int, int]]:
    if not text:
        return frozenset()
    found = set()
    for each in text.split(","):
        match = _WEEKDAY.fullmatch(each)
        if match is None or (match[1] is not None and int(match[1]) == 0):
            raise _wrong(f"BYDAY must be weekdays such as MO or -1FR, not {each!r}")
        found.add((int(match[1] or 0), WEEKDAYS.index(match[2])))
    return frozenset(found)


def _wrong(what: str) -> MemberError:
    return MemberError(f"rrule is not valid: {what}", field="rrule", what=f"is not valid: {what}")
