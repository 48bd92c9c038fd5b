"""Cron expressions of five or six fields, on naive wall time.

cronsim parses, and says which days match. Its own walk is not used: its rule for clock changes does
not exist for six fields, so `wall_clock.py` has the rule for both forms, and it goes from hour to
hour where sorted lists give the next time at once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from datetime import datetime, time, timedelta
from functools import lru_cache
from typing import Final

from cronsim import CronSim, CronSimError

from delaylog.broker.schedules.rarity import DAYS_MAX, too_rare
from delaylog.broker.schedules.wall_clock import EPOCH
from delaylog.storage.errors import MemberError

_DAY: Final = timedelta(days=1)
_YEARS: Final = timedelta(days=50 * 366)
"""An expression that matches nothing for so long has ended."""


class Cron:
    """One parsed expression."""

    def __init__(self, text: str) -> None:
        try:
            self._parsed = parsed = CronSim(text, EPOCH)
        except CronSimError as error:
            what = f"{text!r} is not valid: {str(error)[:1].lower()}{str(error)[1:]}"
            raise MemberError(f"cron {what}", field="cron", what=what) from None
        self._seconds = sorted(parsed.seconds)
        self._minutes = sorted(parsed.minutes)
        self._hours = sorted(parsed.hours)
        self.times_a_day = len(self._hours) * len(self._minutes) * len(self._seconds)
        self._first = time(self._hours[0], self._minutes[0], self._seconds[0])
        fields = text.split()
        self.elapsed = fields[-5].startswith("*") or fields[-4].startswith("*")
        """Wildcard minutes or hours: it follows elapsed time when the clocks change."""

    def next_wall(self, wall: datetime, *, bounded: bool = False) -> datetime | None:
        """The first time after `wall`, or None if there is none in 50 years.

        `bounded`: raises MemberError if that looks at more than DAYS_MAX days.
        """
        day, parsed, looked_at = wall.date(), self._parsed, 0
        if day.month in parsed.months and parsed.match_day(day):
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
            elif parsed.match_day(day):
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

    def explain(self) -> str:
        """The expression in English."""
        return self._parsed.explain()


@lru_cache(maxsize=4_096)
def parsed_cron(text: str) -> Cron:
    """The expression; schedules with equal ones share it. Raises MemberError that names `cron`."""
    return Cron(text)
