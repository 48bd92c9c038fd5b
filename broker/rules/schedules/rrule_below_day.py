"""Recurrence rules of hours, minutes and seconds, on naive wall time.

A period is one hour, minute or second of the rule's interval. Parts of longer periods limit which
of them count, and parts of shorter ones give its times. A search jumps over whole days, hours and
minutes that a limit leaves out.
"""

from __future__ import annotations

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from delaylog.broker.rules.schedules.rarity import too_rare
from delaylog.broker.rules.schedules.rrule_text import UNITS_S, Rule, day_of

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
