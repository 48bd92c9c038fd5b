"""Recurrence rules: the RRULE of RFC 5545 without BYWEEKNO, on naive wall time.

Periods are counted from the start, so any of them is found without the ones before it. A period of
a day, week, month or year has dates, each date the same times of day. A period of a rule of hours,
minutes or seconds is one of them, at the rule's interval: parts of longer periods limit which of
them count, and parts of shorter ones give its times. A search jumps over whole days, hours and
minutes that a limit leaves out. Only COUNT needs the instances from the start on.
"""

from __future__ import annotations

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Final

from delaylog.broker.rules.schedules.rrule_text import (
    MONTHS_ALL,
    UNITS_S,
    Rule,
    day_of,
    parsed_rrule,
)
from delaylog.broker.rules.schedules.wall_clock import DAYS_MAX, too_rare

# ------------------------------------------------------------------- hours, minutes and seconds

STEPS_MAX: Final = 2_000
"""Periods that a search may look at where a caller waits for it: about two milliseconds."""
_YEARS: Final = timedelta(days=50 * 366)
_DAY: Final = timedelta(days=1)


def next_below_day(
    rule: Rule, start: datetime, wall: datetime, *, bounded: bool = False
) -> datetime | None:
    """The first time of a rule after `wall`, or None if there is none in 50 years.

    `bounded`: raises MemberError if that looks at more than STEPS_MAX periods.
    """
    unit_s = UNITS_S[rule.frequency]
    step = timedelta(seconds=unit_s * rule.interval)
    wall = max(wall, start - timedelta(seconds=1))
    first = start - timedelta(seconds=(start - day_of(start)).seconds % unit_s)
    period, steps = first + max((wall - first) // step, 0) * step, 0
    last = wall + _YEARS
    while period <= last:
        later = _left_out_until(rule, period, unit_s)
        if later is None:
            found = _first_after(_times(rule, start, period, unit_s), wall)
            if found is not None:
                return found
            later = period + step
        steps += 1
        if bounded and steps > STEPS_MAX:
            raise too_rare("rrule")
        # The first period that does not begin before that time.
        period = first + -((first - later) // step) * step
    return None


def _left_out_until(rule: Rule, period: datetime, unit_s: int) -> datetime | None:
    """The next time that a limit may let pass, if it does not let this period pass."""
    day = day_of(period)
    if rule.months and day.month not in rule.months:
        return day.replace(day=1) + timedelta(days=monthrange(day.year, day.month)[1])
    if not rule.has_date(day) or (rule.weekdays and (0, day.weekday()) not in rule.weekdays):
        return day + _DAY
    if rule.hours and period.hour not in rule.hours:
        return _following(rule.hours, period.hour, day, 3_600, _DAY)
    if unit_s < 3_600 and rule.minutes and period.minute not in rule.minutes:
        hour = period.replace(minute=0, second=0)
        return _following(rule.minutes, period.minute, hour, 60, timedelta(hours=1))
    if unit_s == 1 and rule.seconds and period.second not in rule.seconds:
        minute = period.replace(second=0)
        return _following(rule.seconds, period.second, minute, 1, timedelta(minutes=1))
    return None


def _following(
    legal: Sequence[int], value: int, whole: datetime, unit_s: int, size: timedelta
) -> datetime:
    """The next legal hour, minute or second of a day, hour or minute, or the end of that."""
    at = bisect_right(legal, value)
    return whole + (timedelta(seconds=legal[at] * unit_s) if at < len(legal) else size)


def _times(rule: Rule, start: datetime, period: datetime, unit_s: int) -> list[datetime]:
    """The times of a period, in order."""
    minutes = (rule.minutes or (start.minute,)) if unit_s == 3_600 else (period.minute,)
    seconds = (rule.seconds or (start.second,)) if unit_s > 1 else (period.second,)
    times = [period.replace(minute=m, second=s) for m in minutes for s in seconds]
    return [times[place] for place in rule.places(len(times))] if rule.positions else times


def _first_after(times: Sequence[datetime], wall: datetime) -> datetime | None:
    at = bisect_right(times, wall)
    return times[at] if at < len(times) else None


# ---------------------------------------------------------------------- days and longer periods

YEARS_MAX: Final = 50
"""A rule that yields nothing for so long has ended; the longest interval is below it."""
_DAYS: Final = {"DAILY": 1, "WEEKLY": 7, "MONTHLY": 31, "YEARLY": 1}
_MONDAY: Final = date(1970, 1, 5)


@dataclass(slots=True)
class Counted:
    """How far the instances of a rule with COUNT have been counted."""

    last: datetime | None = None
    index: int = 0


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A rule from its start: what the rule does not name is as the start has it."""

    rule: Rule
    start: datetime
    times: tuple[time, ...]
    """Of each date; () below a day."""
    counted: Counted = field(default_factory=Counted, compare=False)

    @classmethod
    def of(cls, rule: Rule, start: datetime) -> Recurrence:
        """The recurrence of a rule from a wall time, which has no fraction of a second."""
        if rule.frequency in UNITS_S:
            return cls(rule, start, ())
        hours = rule.hours or (start.hour,)
        minutes = rule.minutes or (start.minute,)
        seconds = rule.seconds or (start.second,)
        times = tuple(time(h, m, s) for h in hours for m in minutes for s in seconds)
        return cls(rule, start, times)

    def next_wall(self, wall: datetime, *, bounded: bool = False) -> datetime | None:
        """The first time after `wall`, or None: past the end, or there is none in 50 years.

        `bounded`: raises MemberError if that looks at more than DAYS_MAX days.
        """
        rule, found = self.rule, self._next(wall, bounded=bounded)
        while found is not None and rule.excluded and rule.leaves_out(found):
            found = self._next(found, bounded=bounded)
        if found is None or (rule.last_wall is not None and found > rule.last_wall):
            return None
        return found if rule.count is None or self._is_counted(found, rule.count) else None

    def _is_counted(self, wall: datetime, count: int) -> bool:
        """Whether this instance is one of the first `count`, those left out included."""
        state = self.counted
        while state.index < count and (state.last is None or state.last < wall):
            following = self._next(state.last or self.start - timedelta(seconds=1))
            if following is None:
                break
            state.last, state.index = following, state.index + 1
        return state.last is not None and wall <= state.last

    def _next(self, wall: datetime, *, bounded: bool = False) -> datetime | None:
        if self.rule.frequency in UNITS_S:
            return next_below_day(self.rule, self.start, wall, bounded=bounded)
        rule, start, looked_at = self.rule, self.start.date(), 0
        dates_of = _dates_of_day if rule.frequency == "DAILY" else _dates
        wall = max(wall, self.start - timedelta(seconds=1))
        count = self._period_at(wall.date())
        count -= count % rule.interval
        last = wall.date().replace(day=1) + timedelta(days=366 * YEARS_MAX)
        while (first := self._first_day(count)) <= last:
            dates = dates_of(rule, start, first)
            found = self._first_after(dates, wall) if dates else None
            if found is not None:
                return found
            looked_at += _days_looked_at(rule)
            if bounded and looked_at > DAYS_MAX:
                raise too_rare("rrule")
            count = max(count + rule.interval, self._next_month(first))
        return None

    def _next_month(self, first: date) -> int:
        """The first period of the rule that reaches a month of BYMONTH, if that which begins at
        `first` has no day in one; 0 otherwise.
        """
        rule, months = self.rule, self.rule.months
        end = first + 6 * _DAY if rule.frequency == "WEEKLY" else first
        if not months or rule.frequency == "YEARLY" or {first.month, end.month} & {*months}:
            return 0
        following = next((month for month in months if month > first.month), None)
        year = first.year if following else first.year + 1
        count = self._period_at(date(year, following or months[0], 1))
        return count + -count % rule.interval

    def _first_after(self, dates: tuple[date, ...], wall: datetime) -> datetime | None:
        if self.rule.positions:
            for found in self._at_positions(dates):
                if found > wall:
                    return found
            return None
        for day in dates[bisect_right(dates, wall.date() - _DAY) :]:
            if day > wall.date():
                return datetime.combine(day, self.times[0])
            at = bisect_right(self.times, wall.time())
            if at < len(self.times):
                return datetime.combine(day, self.times[at])
        return None

    def _at_positions(self, dates: tuple[date, ...]) -> Iterator[datetime]:
        each = len(self.times)
        for place in self.rule.places(len(dates) * each):
            yield datetime.combine(dates[place // each], self.times[place % each])

    def _period_at(self, day: date) -> int:
        start = self.start.date()
        if self.rule.frequency == "DAILY":
            return (day - start).days
        if self.rule.frequency == "WEEKLY":
            return (self._week_of(day) - self._week_of(start)).days // 7
        if self.rule.frequency == "MONTHLY":
            return (day.year - start.year) * 12 + day.month - start.month
        return day.year - start.year

    def _first_day(self, count: int) -> date:
        start = self.start.date()
        if self.rule.frequency == "DAILY":
            return start + count * _DAY
        if self.rule.frequency == "WEEKLY":
            return self._week_of(start) + 7 * count * _DAY
        if self.rule.frequency == "MONTHLY":
            years, month = divmod(start.month - 1 + count, 12)
            return date(start.year + years, month + 1, 1)
        return date(start.year + count, 1, 1)

    def _week_of(self, day: date) -> date:
        return day - (day - _MONDAY - self.rule.week_start * _DAY).days % 7 * _DAY


@lru_cache(maxsize=4_096)
def recurrence(text: str, start: datetime) -> Recurrence:
    """The recurrence of a rule's text; equal schedules share it. Raises MemberError."""
    return Recurrence.of(parsed_rrule(text), start)


@lru_cache(maxsize=4_096)
def _dates(rule: Rule, start: date, first: date) -> tuple[date, ...]:
    """The dates of a week, month or year that begins at `first`, in order."""
    if _is_numbered(rule):
        found = (_numbered(first.year, nth, weekday) for nth, weekday in rule.weekdays)
        return tuple(sorted({day for day in found if day.year == first.year}))
    if rule.frequency == "WEEKLY":
        days: Iterator[date] = (first + n * _DAY for n in range(7))
    elif rule.frequency == "MONTHLY":
        days = _days_of_month(first.year, first.month)
    else:
        every = rule.days or rule.weekdays or rule.yeardays
        months = rule.months or (MONTHS_ALL if every else (start.month,))
        days = (day for month in months for day in _days_of_month(first.year, month))
    days = (day for day in days if rule.has_date(day))
    if rule.weekdays:
        days = (day for day in days if _has_weekday(rule, day))
    elif rule.yeardays:
        pass
    elif not rule.days and rule.frequency == "WEEKLY":
        days = (day for day in days if day.weekday() == start.weekday())
    elif not rule.days and rule.frequency in ("MONTHLY", "YEARLY"):
        days = (day for day in days if day.day == start.day)
    return tuple(days)


def _dates_of_day(rule: Rule, _: date, day: date) -> tuple[date, ...]:
    """The same of a day. A search may look at thousands, so it is not cached."""
    legal = not rule.weekdays or (0, day.weekday()) in rule.weekdays
    return (day,) if legal and rule.has_date(day) else ()


@lru_cache(maxsize=4_096)
def _days_looked_at(rule: Rule) -> int:
    """How many days `_dates` looks at, about."""
    if rule.frequency == "YEARLY" and not _is_numbered(rule):
        every = rule.days or rule.weekdays or rule.yeardays
        return 31 * len(rule.months or (MONTHS_ALL if every else (1,)))
    return _DAYS[rule.frequency]


def _is_numbered(rule: Rule) -> bool:
    """Whether it names weekdays of the year by number, and nothing else."""
    plain = rule.frequency == "YEARLY" and not (rule.months or rule.days or rule.yeardays)
    return plain and bool(rule.weekdays) and all(nth for nth, _ in rule.weekdays)


def _numbered(year: int, nth: int, weekday: int) -> date:
    """The n-th weekday of a year; the 53rd may be in another one."""
    edge = date(year, 1, 1) if nth > 0 else date(year, 12, 31)
    if nth > 0:
        return edge + ((weekday - edge.weekday()) % 7 + 7 * (nth - 1)) * _DAY
    return edge - ((edge.weekday() - weekday) % 7 + 7 * (-nth - 1)) * _DAY


def _days_of_month(year: int, month: int) -> Iterator[date]:
    return (date(year, month, day) for day in range(1, monthrange(year, month)[1] + 1))


def _has_weekday(rule: Rule, day: date) -> bool:
    """Whether BYDAY has the day: each of its weekday, or the n-th of its month or year."""
    weekday = day.weekday()
    if (0, weekday) in rule.weekdays:
        return True
    if rule.frequency == "YEARLY" and not rule.months:
        at = (day - date(day.year, 1, 1)).days
        size = (date(day.year, 12, 31) - date(day.year, 1, 1)).days + 1
    else:
        at, size = day.day - 1, monthrange(day.year, day.month)[1]
    nth, from_end = at // 7 + 1, -((size - at - 1) // 7) - 1
    return (nth, weekday) in rule.weekdays or (from_end, weekday) in rule.weekdays
