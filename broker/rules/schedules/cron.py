"""Cron expressions of five or six fields: checks of their text, and their times on naive wall time.

cronsim parses, and says which days match. It is more lenient than the checks here (a step of 90
minutes would fire hourly), and its errors name a field at most: ours name the field, its value and
its bounds. Only new expressions are checked: those of a log are parsed as they are.

cronsim's own walk is not used: its rule for clock changes does not exist for six fields, so
`wall_clock.py` has the rule for both forms, and it goes from hour to hour where sorted lists give
the next time at once.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Final

from cronsim import CronSim, CronSimError

from delaylog.broker.rules.schedules.dialects.fields import DAY, MONTH, OUR_WEEKDAY, TIMES, Field
from delaylog.broker.rules.schedules.dialects.table import readings
from delaylog.broker.rules.schedules.wall_clock import DAYS_MAX, EPOCH, too_rare
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.contract.members import MemberError

# ----------------------------------------------------------------------------------------- text

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
    """Raises MemberError that names `cron`. What passes, `Cron` parses, unless its days are in none
    of its months.

    The error of a line that another scheduler may have names it, and says what to write.
    """
    fields = text.upper().split()
    counted = len(fields) in (5, 6)
    problem = (
        _problem_of(fields) if counted else f"it has {len(fields)} fields, not 5 or 6: {_WHOLE}"
    )
    if problem:
        known = readings(text, zone, zones)
        if known and (not counted or re.search("[@(=]", text)):
            # Its fields are those of another dialect.
            problem = ""
        raise wrong(text, "; ".join(each for each in (problem, known) if each))


def _problem_of(fields: Sequence[str]) -> str:
    """What is wrong with five or six fields; empty: nothing."""
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
                "" if re.fullmatch(r"0{0,8}[1-5]", nth) else f"has #1 to #5, not #{nth}"
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


# ---------------------------------------------------------------------------------------- times

_DAY: Final = timedelta(days=1)
_YEARS: Final = timedelta(days=50 * 366)
"""An expression that matches nothing for so long has ended."""


class Cron:
    """One parsed expression."""

    def __init__(self, text: str) -> None:
        fields = text.upper().split()
        terms = fields[-3].split(",")
        self._near = tuple(near for term in terms if (near := NEAR_DAY.fullmatch(term)))
        """Terms of days that cronsim does not have."""
        plain = [term for term in terms if not NEAR_DAY.fullmatch(term)]
        self._plain_days = bool(plain)
        fields[-3] = ",".join(plain or ["1"])
        try:
            self._parsed = parsed = CronSim(" ".join(fields), EPOCH)
        except CronSimError as error:
            # Of texts that `check_cron` accepts, only days that their months do not have.
            raise wrong(text, "it never occurs: none of its months has such a day") from error
        self._match_day = self._match_near if self._near else parsed.match_day
        self._seconds = sorted(parsed.seconds)
        self._minutes = sorted(parsed.minutes)
        self._hours = sorted(parsed.hours)
        self.times_a_day = len(self._hours) * len(self._minutes) * len(self._seconds)
        self._first = time(self._hours[0], self._minutes[0], self._seconds[0])
        self._fields = fields
        self.elapsed = fields[-5].startswith("*") or fields[-4].startswith("*")
        """Wildcard minutes or hours: it follows elapsed time when the clocks change."""

    def next_wall(self, wall: datetime, *, bounded: bool = False) -> datetime | None:
        """The first time after `wall`, or None if there is none in 50 years.

        `bounded`: raises MemberError if that looks at more than DAYS_MAX days.
        """
        day, parsed, looked_at = wall.date(), self._parsed, 0
        match_day = self._match_day
        if day.month in parsed.months and match_day(day):
            found = self._next_time(wall)
            if found is not None:
                return datetime.combine(day, found)
        last = day + _YEARS
        while (day := day + _DAY) <= last:
            looked_at += 1
            if bounded and looked_at > DAYS_MAX:
                raise too_rare("cron")
            if day.month not in parsed.months:
                # The last day of this month; the next one is looked at.
                day += timedelta(days=monthrange(day.year, day.month)[1] - day.day)
            elif match_day(day):
                return datetime.combine(day, self._first)
        return None

    def _next_time(self, wall: datetime) -> time | None:
        """The first time of a day after that of `wall`."""
        hours, minutes, seconds = self._hours, self._minutes, self._seconds
        hour = bisect_left(hours, wall.hour)
        if hour < len(hours) and hours[hour] == wall.hour:
            minute = bisect_left(minutes, wall.minute)
            if minute < len(minutes) and minutes[minute] == wall.minute:
                second = bisect_right(seconds, wall.second)
                if second < len(seconds):
                    return time(wall.hour, wall.minute, seconds[second])
                minute += 1
            if minute < len(minutes):
                return time(wall.hour, minutes[minute], seconds[0])
            hour += 1
        return time(hours[hour], minutes[0], seconds[0]) if hour < len(hours) else None

    def count(self, after: datetime, upto: datetime) -> int:
        """The number of times after one and up to another."""
        first, size = after.date(), (upto.date() - after.date()).days + 1
        days = sum(self._has_day(first + n * _DAY) for n in range(size))
        whole = days * self.times_a_day
        before = self._times_upto(after.time()) if self._has_day(after.date()) else 0
        behind = self.times_a_day - self._times_upto(upto.time())
        return whole - before - (behind if self._has_day(upto.date()) else 0)

    def _has_day(self, day: date) -> bool:
        return day.month in self._parsed.months and self._match_day(day)

    def _match_near(self, day: date) -> bool:
        """Whether a day is one of an expression with days that cronsim does not have."""
        parsed = self._parsed
        last = monthrange(day.year, day.month)[1]
        by_date = any(_near_day(near, day, last) == day.day for near in self._near)
        by_date = by_date or (self._plain_days and parsed.match_dom(day))
        if parsed.day_and:
            return by_date and parsed.match_dow(day)
        return by_date or parsed.match_dow(day)

    def _times_upto(self, at: time) -> int:
        """How many times of a day are not after one."""
        hours, minutes, seconds = self._hours, self._minutes, self._seconds
        hour, minute = bisect_left(hours, at.hour), bisect_left(minutes, at.minute)
        count = hour * len(minutes) * len(seconds)
        if hour < len(hours) and hours[hour] == at.hour:
            count += minute * len(seconds)
            if minute < len(minutes) and minutes[minute] == at.minute:
                count += bisect_right(seconds, at.second)
        return count

    def explain(self) -> str:
        """The expression in English."""
        text = self._explained() if self._near else self._parsed.explain()
        if not self._parsed.day_and:
            # Either of the two days is enough.
            text = text.replace(" and on ", " or on ")
        return _NTH.sub(r"\1 2nd \2", _EVERY.sub(_counted, text))

    def _explained(self) -> str:
        """With the days that cronsim does not have in the place of LW, which may be there too."""
        fields = list(self._fields)
        plain = fields[-3].split(",") if self._plain_days else []
        days = ["the last weekday"] if any(each.startswith("LW") for each in plain) else []
        days += [_in_words(near) for near in self._near]
        fields[-3] = ",".join([*plain, "LW"])
        text = CronSim(" ".join(fields), EPOCH).explain()
        return text.replace("the last weekday", " and ".join(days))


def _near_day(near: re.Match[str], day: date, last: int) -> int:
    """The day of a term in the month of `day`, whose last day is given; 0 if it has none."""
    at = int(near[3]) if near[3] else last - int(near[1])
    if not 1 <= at <= last or not (near[2] or near[3]):
        return at if 1 <= at <= last else 0
    weekday = (day.weekday() + at - day.day) % 7
    # Saturday and Sunday move within the month.
    if weekday == 5:
        return at - 1 if at > 1 else at + 2
    if weekday == 6:
        return at + 1 if at < last else at - 2
    return at


def _in_words(near: re.Match[str]) -> str:
    if near[3]:
        return f"the weekday nearest to day {near[3]}"
    day = f"day {near[1]} before the last"
    return f"the weekday nearest to {day}" if near[2] else day


_ORDINALS: Final = {"second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6}
_EVERY: Final = re.compile(r"^Every (\w+) (second of every minute|minute of every hour)$")
_NTH: Final = re.compile(r"\b([Ee]very) second (second|minute|hour|day|month)\b")


def _counted(match: re.Match[str]) -> str:
    """Every 5 minutes, where cronsim says every fifth minute of every hour; if no step is short."""
    count = _ORDINALS.get(match[1], match[1].removesuffix("th"))
    even = str(count).isdecimal() and 60 % int(count) == 0
    return f"Every {count} {match[2].split()[0]}s" if even else match[0]


@lru_cache(maxsize=4_096)
def parsed_cron(text: str) -> Cron:
    """The expression; schedules with equal ones share it. Raises MemberError that names `cron`."""
    return Cron(text)
