"""The text of a recurrence rule: the lines of iCalendar around it, its parts and their bounds.

A text is a rule alone, or the lines of an event: DTSTART and EXDATE are understood, what says
nothing of times is passed over, and what would change the instants and is not supported is refused
by name. `members_of_text` turns DTSTART into the members `start_ms` and `zone`, so that a stored
rule has its parts and exceptions only. A part that RFC 5545 forbids beside a frequency is an error
here, never ignored.
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

from delaylog.broker.rules.schedules.wall_clock import EPOCH, WallClock
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.contract.calls.schedules import RRULE
from delaylog.contract.members import MemberError

# --------------------------------------------------------------------------- lines of iCalendar

_NAMES: Final = "BEGIN|END|DTSTART|DTEND|RRULE|EXDATE|EXRULE|RDATE|RECURRENCE-ID|DURATION|UID"
_NAMED: Final = re.compile(rf"\s*(?:{_NAMES})[;:]", re.IGNORECASE)
_BREAK: Final = re.compile(rf"[\r\n]|\s(?=(?:{_NAMES})[;:])", re.IGNORECASE)
_PROPERTY: Final = re.compile(r"([A-Za-z][A-Za-z-]*)((?:;[^:;=]+=(?:\"[^\"]*\"|[^:;\"]*))*):(.*)")
_STAMP: Final = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z?))?", re.ASCII)
_OTHER_TIMES: Final = ("VTIMEZONE", "VALARM")
"""Components whose lines say nothing of the event's times."""
_EVENTS: Final = ("VEVENT", "VTODO", "VJOURNAL")
"""Components that may have a rule (RFC 5545, 3.6.1 to 3.6.3)."""
_REFUSED: Final = {
    "RDATE": "send a message with deliver_at_ms for each of its dates",
    "EXRULE": "RFC 5545 has removed it: write the dates as EXDATE",
    "RECURRENCE-ID": "an instance that was moved is an EXDATE, and a message with deliver_at_ms",
}


class Stamp(NamedTuple):
    """A date, a local time or a time in UTC, as RFC 5545 writes them."""

    at: datetime
    utc: bool = False
    date: bool = False
    zone: str = ""
    """TZID, while a text is read."""

    @classmethod
    def read(cls, name: str, text: str, zone: str = "") -> Stamp:
        """A value of a property or part. Raises MemberError that names it."""
        match = _STAMP.fullmatch(text.upper())
        try:
            if match is None:
                raise ValueError
            at = datetime.strptime(match[1] + (match[2] or "000000"), "%Y%m%d%H%M%S")  # noqa: DTZ007
        except ValueError:
            forms = "20270131, 20270131T090000 or 20270131T080000Z"
            raise wrong(f"{name} is a time such as {forms}, not {text!r}") from None
        return cls(at, bool(match[3]), match[2] is None, "" if match[3] else zone)

    @property
    def instant_s(self) -> int:
        """The instant of a time in UTC."""
        assert self.utc
        return int((self.at - EPOCH).total_seconds())

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.at:%Y%m%d}" if self.date else f"{self.at:%Y%m%dT%H%M%S}{'Z' * self.utc}"


@dataclass(frozen=True, slots=True)
class ICalendar:
    """What a text says: the parts of its rule, its start, and its exceptions."""

    parts: Mapping[str, str]
    start: Stamp | None
    excluded: Sequence[Stamp]

    @classmethod
    def read(cls, text: str) -> ICalendar:
        """Raises MemberError that names `rrule`."""
        rules: list[str] = []
        parts: list[str] = []
        starts, excluded = list[Stamp](), list[Stamp]()
        for name, zone, value in _properties(text):
            if name == "RRULE":
                rules.append(value)
                parts += value.split(";")
            elif name == "":
                parts += value.split(";")
            elif name == "DTSTART":
                starts.append(Stamp.read(name, value, zone))
            elif name == "EXDATE":
                excluded += [Stamp.read(name, each, zone) for each in value.split(",") if each]
            elif name in _REFUSED:
                raise wrong(f"{name} is not supported: {_REFUSED[name]}")
        if len(rules) > 1:
            raise wrong(f"it has {len(rules)} rules: put a schedule for each")
        found = _named(parts)
        inside = found.pop("DTSTART", None)
        zone = found.pop("TZID", "")
        if inside is not None:
            starts.append(Stamp.read("DTSTART", inside, zone))
        if len(starts) > 1:
            raise wrong("DTSTART occurs twice")
        if not found and starts:
            raise wrong("it has no RRULE: send a message with deliver_at_ms instead")
        return cls(found, starts[0] if starts else None, excluded)

    @property
    def text(self) -> str:
        """The rule and its exceptions: what is stored."""
        rule = ";".join(f"{name}={value}" for name, value in self.parts.items())
        if not self.excluded:
            return rule
        days = ",".join(sorted({each.text for each in self.excluded if each.date}))
        times = ",".join(sorted({each.text for each in self.excluded if not each.date}))
        lines = [f"RRULE:{rule}", f"EXDATE;VALUE=DATE:{days}", f"EXDATE:{times}"]
        return "\n".join(line for line in lines if not line.endswith(":"))


def members_of_text(members: Mapping[str, Any], zones: Zones = PACKAGED) -> dict[str, Any]:
    """The members of a timing, with what the lines around its rule say. Raises MemberError."""
    out = dict(members)
    text = out.get("rrule")
    if not isinstance(text, str):
        return out
    RRULE.check(text)
    found = ICalendar.read(text)
    start = found.start
    if start is not None:
        zone = "UTC" if start.utc else _zone_of(start.zone, zones) or out.get("zone") or "UTC"
        if out.get("zone") not in (None, zone):
            raise wrong(
                f"DTSTART is in {zone} and zone is {out['zone']}, which are different rules: leave "
                "one of them out"
            )
        if zone not in zones.names:
            raise MemberError(f"zone {zones.what_is_no_zone(zone)}", field="zone")
        clock = WallClock(zones.zone(zone))
        at_ms = clock.instant(start.at) * 1_000
        if clock.wall(at_ms // 1_000) != start.at:
            raise wrong(
                f"DTSTART is {start.text}, which the clocks of {zone} skip: give the DTSTART of "
                "another instance"
            )
        if out.get("start_ms") not in (None, at_ms):
            raise wrong(f"DTSTART is {at_ms} and start_ms is {out['start_ms']}: leave one out")
        out |= {"zone": zone, "start_ms": at_ms}
    own = out.get("zone") or "UTC"
    excluded = [_in_zone(each, own, zones) for each in found.excluded]
    out["rrule"] = ICalendar(found.parts, None, excluded).text
    return out


def said_by(text: str) -> set[str]:
    """Which members of a timing the lines around a rule say."""
    start = ICalendar.read(text).start
    if start is None:
        return set()
    return {"start_ms", "zone"} if start.utc or start.zone else {"start_ms"}


def wrong(what: str) -> MemberError:
    """The error of a rule."""
    return MemberError(f"rrule is not valid: {what}", field="rrule", what=f"is not valid: {what}")


def _properties(text: str) -> list[tuple[str, str, str]]:
    """(name, TZID, value) of each line; name "" for a line of parts."""
    out: list[tuple[str, str, str]] = []
    inside: list[str] = []
    events = 0
    for line in _lines(text):
        match = _PROPERTY.fullmatch(line.strip())
        name = "" if match is None else match[1].upper()
        value = "".join((line if match is None else match[3]).split())
        if name == "BEGIN":
            inside.append(value.upper())
            events += value.upper() in _EVENTS
        elif name == "END":
            inside = inside[:-1]
        elif value and not any(each in inside for each in _OTHER_TIMES):
            zone = re.search(r";TZID=\"?([^\";]*)", match[2], re.IGNORECASE) if match else None
            out.append((name, zone[1].strip() if zone else "", value))
    if events > 1:
        raise wrong(f"it has {events} events: put a schedule for each")
    return out


def _lines(text: str) -> list[str]:
    r"""The lines of a text, unfolded. One that was pasted as a single line is split at each \n and
    before each property; in lines of their own these may be words of a description.
    """
    if "\n" not in text.strip():
        return _BREAK.split(text.replace("\\n", "\n"))
    lines: list[list[str]] = [[]]
    for line in re.split(r"\r?\n|\r", text):
        if line.startswith((" ", "\t")) and not _NAMED.match(line):
            lines[-1].append(line[1:])
        else:
            lines.append([line])
    return ["".join(line) for line in lines]


def _named(parts: Sequence[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for part in parts:
        if not part:
            # A semicolon at the end.
            continue
        name, equals, value = part.partition("=")
        name = name.upper()
        if not equals or not value:
            raise wrong(f"{part!r} is no NAME=VALUE, such as FREQ=WEEKLY;BYDAY=MO,WE")
        if name in out:
            raise wrong(f"{name} occurs twice")
        out[name] = value if name == "TZID" else value.upper()
    return out


def _zone_of(tzid: str, zones: Zones) -> str:
    """The zone of a TZID. Some programs write a path before the name."""
    parts = tzid.strip("/").split("/")
    tails = ("/".join(parts[at:]) for at in range(len(parts)))
    return next((each for each in tails if each in zones.names), tzid)


def _in_zone(stamp: Stamp, zone: str, zones: Zones) -> Stamp:
    """An exception of another zone is a time in UTC."""
    name = _zone_of(stamp.zone, zones)
    if stamp.date or stamp.utc or name in ("", zone):
        return stamp._replace(zone="")
    if name not in zones.names:
        raise MemberError(f"zone {zones.what_is_no_zone(name)}", field="zone")
    instant = WallClock(zones.zone(name)).instant(stamp.at)
    return Stamp(datetime.fromtimestamp(instant, UTC).replace(tzinfo=None), utc=True)


# ------------------------------------------------------------------------------ parts of a rule

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
