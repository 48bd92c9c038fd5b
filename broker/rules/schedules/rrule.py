"""Recurrence rules: the RRULE of RFC 5545 without BYWEEKNO, on naive wall time.

Periods are counted from the start, so any of them is found without the ones before it. A period of
a day, week, month or year has dates, each date the same times of day; those below a day are in
`rrule_below_day.py`. Only COUNT needs the instances from the start on.
"""

from __future__ import annotations

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Final

from delaylog.broker.rules.schedules.rarity import DAYS_MAX, too_rare
from delaylog.broker.rules.schedules.rrule_below_day import next_below_day
from delaylog.broker.rules.schedules.rrule_text import MONTHS_ALL, UNITS_S, Rule, parsed_rrule

YEARS_MAX: Final = 50
"""A rule that yields nothing for so long has ended; the longest interval is below it."""
_DAY: Final = timedelta(days=1)
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
