"""A timing in plain English, its rule for clock changes included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from delaylog.broker.rules.schedules.cron import parsed_cron
from delaylog.broker.rules.schedules.rrule import recurrence
from delaylog.broker.rules.schedules.rrule_text import UNITS_S, Rule, parsed_rrule
from delaylog.broker.rules.schedules.timing import Timing
from delaylog.broker.rules.schedules.wall_clock import WallClock
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones

_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_PERIODS: Final = {
    "SECONDLY": "second",
    "MINUTELY": "minute",
    "HOURLY": "hour",
    "DAILY": "day",
    "WEEKLY": "week",
    "MONTHLY": "month",
    "YEARLY": "year",
}
_UNITS: Final = (
    (86_400_000, "day"),
    (3_600_000, "hour"),
    (60_000, "minute"),
    (1_000, "second"),
    (1, "millisecond"),
)
_GAPS: Final = {
    "shift": "A time that the clocks skip fires later by the time that is skipped",
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
        if timing.rrule is not None:
            sentences += _bounds(parsed_rrule(timing.rrule))
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
    below_a_day = rule.frequency in UNITS_S
    if not weekdays and not days and not rule.yeardays and rule.frequency in _DATED:
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
    if rule.yeardays:
        parts.append(f"on {_listed([f'the {_nth(day)} day of the year' for day in rule.yeardays])}")
    if months:
        parts.append(f"in {_listed([_MONTHS[month - 1] for month in months])}")
    if below_a_day:
        return " ".join((*parts, *_limits(rule, start)))
    shown = "%H:%M:%S" if any(each.second for each in times) else "%H:%M"
    parts.append(f"at {_listed([each.strftime(shown) for each in times[:_SHOWN]])}")
    if len(times) > _SHOWN:
        parts.append(f"and {len(times) - _SHOWN:,} more times")
    return " ".join((*parts, *_places(rule)))


def _limits(rule: Rule, start: datetime) -> list[str]:
    """The parts of a rule below a day, behind its days."""
    minutes, seconds = rule.minutes, rule.seconds
    if rule.frequency == "HOURLY":
        minutes = minutes or (start.minute,)
    if rule.frequency != "SECONDLY" and (seconds or start.second):
        seconds = seconds or (start.second,)
    named = (("hour", rule.hours), ("minute", minutes), ("second", seconds))
    parts = [
        f"{'at' if name == 'second' else 'in'} {name}{'s' * (len(values) > 1)} "
        f"{_listed([str(each) for each in values])}"
        for name, values in named
        if values
    ]
    counted = [f"counted from {start:%Y-%m-%d %H:%M:%S}"] if rule.interval > 1 else []
    return [*parts, *_places(rule), *counted]


def _places(rule: Rule) -> list[str]:
    places = [f"the {_nth(each)}" for each in rule.positions]
    return [f"(of these, {_listed(places)} of the {_PERIODS[rule.frequency]})"] if places else []


def _bounds(rule: Rule) -> list[str]:
    """What COUNT, UNTIL and EXDATE say."""
    sentences = []
    if rule.count is not None:
        sentences.append(f"Only the first {rule.count:,} from its start.")
    if rule.until is not None:
        at = rule.until.at
        shown = f"{at:%Y-%m-%d}" if rule.until.date else f"{at:%Y-%m-%d %H:%M:%S}"
        sentences.append(f"Up to {shown}{' UTC' * rule.until.utc}, which is included.")
    if rule.excluded:
        first = sorted(rule.excluded)[:_SHOWN]
        left = len(rule.excluded) - len(first)
        more = [f"{left:,} more"] if left else []
        sentences.append(f"Not {_listed([*(each.text for each in first), *more])}.")
    return sentences


_DATED: Final = ("WEEKLY", "MONTHLY", "YEARLY")
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
