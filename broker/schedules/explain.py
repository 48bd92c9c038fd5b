"""A timing in plain English, its rule for clock changes included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from delaylog.broker.schedules.cron import parsed_cron
from delaylog.broker.schedules.rrule import recurrence
from delaylog.broker.schedules.rrule_text import parsed_rrule
from delaylog.broker.schedules.timing import Timing
from delaylog.broker.schedules.wall_clock import WallClock
from delaylog.broker.schedules.zones import PACKAGED, Zones

_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_PERIODS: Final = {"DAILY": "day", "WEEKLY": "week", "MONTHLY": "month", "YEARLY": "year"}
_UNITS: Final = (
    (86_400_000, "day"),
    (3_600_000, "hour"),
    (60_000, "minute"),
    (1_000, "second"),
    (1, "millisecond"),
)
_GAPS: Final = {
    "next": "A time that the clocks skip fires right after the change",
    "skip": "A time that the clocks skip does not fire",
}
_FOLDS: Final = {
    "first": "a time that they repeat fires at its first pass.",
    "second": "a time that they repeat fires at its second pass.",
    "both": "a time that they repeat fires at both passes.",
}
_ELAPSED: Final = (
    "When the clocks change, it follows elapsed time: it fires in both passes of a repeated hour, "
    "and not for a skipped one."
)


def explain(timing: Timing, zones: Zones = PACKAGED) -> str:
    """Sentences about when it fires. The timing passed `check_timing` when it was put.

    The release of tzdata may be another one now: a zone that it lacks is all that is said then.
    """
    if timing.zone not in zones.names:
        return f"{zones.lack(timing.zone)}."
    if timing.interval_ms is not None:
        sentences = [f"Every {_duration(timing.interval_ms)}, by elapsed time."]
    else:
        when = _cron(timing) if timing.cron is not None else _rrule(timing, zones)
        sentences = [f"{when}, {timing.zone} time."]
        fixed = zones.zone(timing.zone).utcoffset(None) is not None
        if timing.elapsed and not fixed:
            sentences.append(_ELAPSED)
        elif not fixed:
            sentences.append(f"{_GAPS[timing.gap]}; {_FOLDS[timing.fold]}")
    if timing.start_ms is not None:
        sentences.append(f"Not before {_utc(timing.start_ms)}.")
    if timing.end_ms is not None:
        sentences.append(f"Before {_utc(timing.end_ms)}.")
    if timing.count is not None:
        sentences.append("Once only." if timing.count == 1 else f"{timing.count:,} times at most.")
    return " ".join(sentences)


def _cron(timing: Timing) -> str:
    assert timing.cron is not None
    return parsed_cron(timing.cron).explain()


def _rrule(timing: Timing, zones: Zones) -> str:
    assert timing.rrule is not None
    assert timing.start_ms is not None
    start = WallClock(zones.zone(timing.zone)).wall(timing.start_ms // 1_000)
    rule, times = parsed_rrule(timing.rrule), recurrence(timing.rrule, start).times
    period = _PERIODS[rule.frequency]
    weekdays = rule.weekdays
    days, months = rule.days, rule.months
    if not weekdays and not days and rule.frequency != "DAILY":
        if rule.frequency == "WEEKLY":
            weekdays = frozenset({(0, start.weekday())})
        else:
            days = (start.day,)
            if rule.frequency == "YEARLY" and not months:
                months = (start.month,)
    parts = [f"Every {_counted(rule.interval, period)}"]
    if weekdays:
        by_day = sorted(weekdays, key=lambda each: (each[1], each[0]))
        names = [f"the {_nth(nth)} {_WEEKDAYS[at]}" if nth else _WEEKDAYS[at] for nth, at in by_day]
        parts.append(f"on {_listed(names)}")
        if days:
            parts.append("if it is")
    if days:
        parts.append(f"on {_listed([f'the {_nth(day)} day of the month' for day in days])}")
    if months:
        parts.append(f"in {_listed([_MONTHS[month - 1] for month in months])}")
    shown = "%H:%M:%S" if any(each.second for each in times) else "%H:%M"
    parts.append(f"at {_listed([each.strftime(shown) for each in times[:_SHOWN]])}")
    if len(times) > _SHOWN:
        parts.append(f"and {len(times) - _SHOWN:,} more times")
    if rule.positions:
        places = _listed([f"the {_nth(each)}" for each in rule.positions])
        parts.append(f"(of these, {places} of the {period})")
    return " ".join(parts)


_SHOWN: Final = 12


def _counted(count: int, unit: str) -> str:
    return unit if count == 1 else f"{count:,} {unit}s"


def _duration(duration_ms: int) -> str:
    parts = []
    for size_ms, unit in _UNITS:
        count, duration_ms = divmod(duration_ms, size_ms)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    if parts and len(parts) == 1:
        return parts[0].removeprefix("1 ")
    return _listed(parts)


def _nth(number: int) -> str:
    if number == -1:
        return "last"
    if number < 0:
        return f"{_nth(-number)} to last"
    tens, ones = divmod(number % 100, 10)
    ending = {1: "st", 2: "nd", 3: "rd"}.get(ones, "th") if tens != 1 else "th"
    return f"{number}{ending}"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _utc(instant_ms: int) -> str:
    at = datetime.fromtimestamp(instant_ms // 1_000, UTC) + timedelta(
        milliseconds=instant_ms % 1_000
    )
    text = at.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{instant_ms % 1_000:03} UTC" if instant_ms % 1_000 else f"{text} UTC"
