"""Lines of other crons: recognised by their form, and converted to members of a timing.

Each is `is_..._line` and `from_...`, which raises RefusedError for what has no exact equivalent.

    vixie     minute hour day-of-month month day-of-week; Vixie's cron and its children (cronie,
              Debian, robfig). Their five fields are ours; nicknames, CRON_TZ and the command of a
              crontab's line, ranges that wrap, steps longer than their field and random times are
              not.
    aws       EventBridge: cron(minutes hours day-of-month month day-of-week year), rate, at. Sunday
              is 1, one of the two days is `?`, and a time that the clocks skip does not fire (User
              Guide of EventBridge Scheduler, "Schedule types").
    quartz    seconds minutes hours day-of-month month day-of-week [year]. Sunday is 1, one of the
              two days is `?` (documentation of CronTrigger and CronExpression). Ranges may wrap.
    spring    second minute hour day-of-month month day-of-week. Sunday is 0 or 7, both days must
              match (documentation of CronExpression), steps of weekdays count from Monday.
    croniter  minute hour day-of-month month day-of-week [second [year]]. Either of the two days is
              enough, also beside a step (`day_or`); `?` is a star.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from delaylog.broker.rules.schedules.dialects.fields import (
    CRON_WEEKDAY,
    JAVA_WEEKDAY,
    MONDAY_FIRST,
    MONTH,
    TIMES,
    Field,
    RefusedError,
)
from delaylog.broker.rules.schedules.dialects.lines import YEAR, fields_of, members_of
from delaylog.broker.rules.schedules.wall_clock import WallClock
from delaylog.broker.rules.schedules.zones import Zones

# ------------------------------------------------------------------------------------- crontabs

NICKNAMES: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_CRON_DAY: Final = Field("day of month", 1, 31, special=frozenset({"L", "L-n", "LW", "nW", "L-nW"}))
"""Of crontabs and of Quartz: all that our cron has."""
_ZONE: Final = re.compile(
    r"\s*(?:CRON_)?TZ=(\"[^\"]*\"|'[^']*'|\S+)\s+(.*)", re.IGNORECASE | re.DOTALL
)
_PART: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)(ms|h|m|s)", re.ASCII)
_EVERY_UNITS_MS: Final = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_FIELD: Final = re.compile(r"[0-9*/,?#LW-]+|[A-Z]{3}([-,/#][A-Z0-9]+)*L?", re.IGNORECASE | re.ASCII)
_WEEKDAY_WORD: Final = re.compile(
    r"(SUN|MON|TUES?|WED(NES)?|THU(RS?)?|FRI|SAT(UR)?)(DAY)?S?([-,#].*)?", re.IGNORECASE
)
_OTHER_CALL: Final = re.compile(r"\s*(cron|rate|at)\s*\(", re.IGNORECASE)


def is_vixie_line(text: str) -> bool:
    """Whether a text may be of a crontab; five and six fields are ours, with mistakes perhaps."""
    if _OTHER_CALL.match(text):
        return False
    fields = text.split()
    plain = len(fields) == 5 or (len(fields) == 6 and "?" not in text)
    marked = text.lstrip().startswith("@") or bool(_ZONE.match(text))
    return marked or plain or _has_command(fields)


def _has_command(fields: list[str]) -> bool:
    """Whether a command is behind five fields: a long name of a weekday, MONDAY, is none."""
    tail = fields[5:]
    if not tail or all(_FIELD.fullmatch(each) for each in tail):
        return False
    return not _WEEKDAY_WORD.fullmatch(tail[0])


def is_plain_vixie(text: str) -> bool:
    """Whether a line has five or six fields and nothing that only crontabs have."""
    fields = text.split()
    return len(fields) in (5, 6) and not re.search(r"[@=~?]|(^|,)[HR](\(|/|\s)", text)


def from_vixie(text: str, zone: str, zones: Zones) -> dict[str, Any]:
    """The members of a timing. Raises RefusedError."""
    own = _ZONE.match(text)
    if own is not None:
        name = own[1].strip("\"'")
        if name not in zones.names:
            raise RefusedError(f"the zone {zones.what_is_no_zone(name)}")
        if zone not in ("UTC", name):
            raise RefusedError(f"it names the zone {name}, and zone is {zone}")
        return {**from_vixie(own[2], name, zones), "zone": name}
    text = text.strip()
    if text.startswith("@"):
        return _nickname(text)
    fields = text.upper().split()
    if _has_command(fields):
        fields = fields[:5]
    # Some crons have a year behind.
    year = [fields.pop()] if len(fields) == 6 and YEAR.fullmatch(fields[5]) else []
    if len(fields) not in (5, 6):
        raise RefusedError(f"it has {len(fields)} fields, not 5 or 6")
    for each in fields:
        if "~" in each or re.search(r"(^|,)[RH](\(|$|/)", each):
            raise RefusedError(f"{each} is a random time: choose one, or use jitter_ms")
    if len(fields) == 5 and "?" in fields and re.search(r"[0-9]", fields[4]):
        raise RefusedError(
            "in crontabs weekdays count from 0 for Sunday, in AWS and Quartz from 1: write names, "
            "and * for ?"
        )
    line = fields if len(fields) == 6 else ["0", *fields]
    both = line[3].startswith("*") or line[5].startswith("*")
    return members_of([*line, *year], _CRON_DAY, CRON_WEEKDAY, zone, zones, both=both)


def _nickname(text: str) -> dict[str, Any]:
    word, _, rest = text.partition(" ")
    if word.upper() == "@EVERY":
        parts = _PART.findall(rest)
        if "".join(number + unit for number, unit in parts) != rest.strip() or not parts:
            raise RefusedError(f"@every has a time such as 1h30m, not {rest!r}")
        return {"interval_ms": round(sum(float(n) * _EVERY_UNITS_MS[unit] for n, unit in parts))}
    if word.upper() == "@REBOOT":
        raise RefusedError("@reboot has no times: send a message when your program starts")
    found = NICKNAMES.get(word.upper())
    if found is None:
        raise RefusedError(f"{word} is no nickname: write five or six fields")
    return {"cron": found}


# ---------------------------------------------------------------------------------- EventBridge

_AWS_FIELDS: Final = "minutes, hours, day of month, month, day of week and year"
_CALL: Final = re.compile(r"(cron|rate|at)\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_AWS_DAY: Final = Field("day of month", 1, 31, special=frozenset({"L", "nW"}))
_RATE_UNITS_MS: Final = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


def is_aws_line(text: str) -> bool:
    """Whether a text has a form of EventBridge that is not ours."""
    if _CALL.fullmatch(text.strip()):
        return True
    fields = text.split()
    return len(fields) == 6 and ("?" in (fields[2], fields[4]) or bool(YEAR.fullmatch(fields[5])))


def from_aws(text: str, zone: str, zones: Zones) -> dict[str, Any]:
    """The members of a timing. Raises RefusedError."""
    call = _CALL.fullmatch(text.strip())
    kind, inside = ("cron", text) if call is None else (call[1].lower(), call[2])
    if kind == "rate":
        return _rate(inside)
    if kind == "at":
        return _at(inside, zone, zones)
    fields = fields_of(inside, (6,), _AWS_FIELDS)
    minute, hour, day, _, weekday, _ = fields
    if "?" not in (day, weekday) and "*" not in (day, weekday):
        raise RefusedError("one of the day of month and the day of week must be '?'")
    members = members_of(["0", *fields], _AWS_DAY, JAVA_WEEKDAY, zone, zones)
    elapsed = minute.startswith("*") or hour.startswith("*")
    return members if zone == "UTC" or elapsed else {**members, "gap": "skip"}


def _rate(inside: str) -> dict[str, Any]:
    match = re.fullmatch(r"([0-9]{1,9})\s+(minute|hour|day)s?", inside.strip().lower(), re.ASCII)
    if match is None or int(match[1]) < 1:
        raise RefusedError(f"a rate is a number and minutes, hours or days, not {inside!r}")
    return {"interval_ms": int(match[1]) * _RATE_UNITS_MS[match[2]]}


def _at(inside: str, zone: str, zones: Zones) -> dict[str, Any]:
    try:
        at = datetime.strptime(inside.strip(), "%Y-%m-%dT%H:%M:%S")  # noqa: DTZ007
    except ValueError:
        raise RefusedError(f"at has a time such as 2027-01-31T09:00:00, not {inside!r}") from None
    start_ms = WallClock(zones.zone(zone)).instant(at) * 1_000
    return {"rrule": "FREQ=DAILY;COUNT=1", "start_ms": start_ms}


# --------------------------------------------------------------------------------------- Quartz

_QUARTZ_FIELDS: Final = (
    "seconds, minutes, hours, day of month, month, day of week and, if given, year"
)


def is_quartz_line(text: str) -> bool:
    """Whether a text has a form of Quartz that is not ours."""
    fields = text.split()
    return len(fields) == 7 or (len(fields) == 6 and "?" in (fields[3], fields[5]))


def from_quartz(text: str, zone: str, zones: Zones) -> dict[str, Any]:
    """The members of a timing. Raises RefusedError."""
    fields = fields_of(text, (6, 7), _QUARTZ_FIELDS)
    day, weekday = fields[3], fields[5]
    if day not in "?*" and weekday not in "?*":
        raise RefusedError("one of the day of month and the day of week must be '?'")
    for number in (29, 30, 31):
        if f"{number}W" in day.split(","):
            raise RefusedError(
                f"{number}W is not defined for shorter months: write LW for the last weekday, or "
                "a day up to 28"
            )
    return members_of(fields, _CRON_DAY, JAVA_WEEKDAY, zone, zones)


# --------------------------------------------------------------------------------------- Spring

_SPRING_FIELDS: Final = "second, minute, hour, day of month, month and day of week"
_SPRING_DAY: Final = Field("day of month", 1, 31, special=frozenset({"L", "L-n", "LW", "nW"}))


class _SpringWeekday(Field):
    """Monday is 1 and Sunday 7; 0 is Sunday, too."""

    __slots__ = ()

    def term_values(self, term: str) -> list[int]:
        """A range that begins on Sunday counts from it: 0-6/2 is SUN, TUE, THU and SAT."""
        whole_week = re.sub(r"^(0|[07]-7)(?=/)|^[07]-7$", "0-6", term)
        return Field.term_values(self, whole_week)

    def _value(self, text: str, term: str) -> int:
        return Field._value(self, "7" if text == "0" else text, term)


_SPRING_WEEKDAY: Final = _SpringWeekday(
    "day of week", 1, 7, MONDAY_FIRST, 1, special=frozenset({"nL", "n#k"}), sunday=7
)


def is_spring_line(text: str) -> bool:
    """Whether a text has a form of Spring that is not ours."""
    fields = text.split()
    return len(fields) == 6 and "?" in (fields[3], fields[5])


def from_spring(text: str, zone: str, zones: Zones) -> dict[str, Any]:
    """The members of a timing. Raises RefusedError."""
    if text.lstrip().startswith("@"):
        return from_vixie(text, zone, zones)
    return members_of(
        fields_of(text, (6,), _SPRING_FIELDS), _SPRING_DAY, _SPRING_WEEKDAY, zone, zones, both=True
    )


# ------------------------------------------------------------------------------------- croniter

_CRONITER_FIELDS: Final = "minute, hour, day of month, month, day of week, second and year"
_CRONITER_DAY: Final = Field("day of month", 1, 31, special=frozenset({"L"}))
_LAST: Final = re.compile(r"L([0-7])", re.ASCII)


def is_croniter_line(text: str) -> bool:
    """Whether a text may be one of croniter that is not ours."""
    fields = text.split()
    return len(fields) in (6, 7) and not (len(fields) > 5 and "?" in fields[3] + fields[5])


def from_croniter(text: str, zone: str, zones: Zones) -> dict[str, Any]:
    """The members of a timing. Raises RefusedError."""
    if text.lstrip().startswith("@"):
        return from_vixie(text, zone, zones)
    fields = fields_of(text, (5, 6, 7), _CRONITER_FIELDS)
    if any(re.search(r"(^|,)[RH](\(|$|/)", each) for each in fields):
        raise RefusedError("R and H are random times: choose one, or use jitter_ms")
    *times, weekday = fields[:5]
    for field, text in zip((*TIMES[1:], _CRONITER_DAY, MONTH, CRON_WEEKDAY), fields, strict=False):
        for term in text.split(","):
            body, slash, _ = term.partition("/")
            if slash and "-" in body and (values := field.term_values(body)) != sorted(values):
                raise RefusedError(
                    f"croniter counts the step of {term} in its own way: list values"
                )
    # L5 is the last Friday.
    ours = [f"{m[1]}L" if (m := _LAST.fullmatch(each)) else each for each in weekday.split(",")]
    second, *year = fields[5:] or ["0"]
    line = [second, *times, ",".join(ours), *year]
    return members_of(line, _CRONITER_DAY, CRON_WEEKDAY, zone, zones)
