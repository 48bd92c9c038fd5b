"""Crontabs: Vixie's cron and its children (cronie, Debian, robfig), whose five fields are ours.

What differs: nicknames, CRON_TZ and the command of a crontab's line, ranges that wrap, steps that
are longer than their field, and random times.
"""

from __future__ import annotations

import re
from typing import Any, Final

from delaylog.broker.rules.schedules.dialects.fields import CRON_WEEKDAY, Field, RefusedError
from delaylog.broker.rules.schedules.dialects.lines import YEAR, members_of
from delaylog.broker.rules.schedules.zones import Zones

NICKNAMES: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_DAY: Final = Field("day of month", 1, 31, special=frozenset({"L", "L-n", "LW", "nW", "L-nW"}))
_ZONE: Final = re.compile(
    r"\s*(?:CRON_)?TZ=(\"[^\"]*\"|'[^']*'|\S+)\s+(.*)", re.IGNORECASE | re.DOTALL
)
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|h|m|s)", re.ASCII)
_UNITS_MS: Final = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_FIELD: Final = re.compile(r"[0-9*/,?#LW-]+|[A-Z]{3}([-,/#][A-Z0-9]+)*L?", re.IGNORECASE | re.ASCII)
_WEEKDAY_WORD: Final = re.compile(
    r"(SUN|MON|TUES?|WED(NES)?|THU(RS?)?|FRI|SAT(UR)?)(DAY)?S?([-,#].*)?", re.IGNORECASE
)
_OTHER_CALL: Final = re.compile(r"\s*(cron|rate|at)\s*\(", re.IGNORECASE)


def is_line(text: str) -> bool:
    """Whether a text may be of a crontab; five and six fields are ours, with mistakes perhaps."""
    if _OTHER_CALL.match(text):
        return False
    fields = text.split()
    plain = len(fields) == 5 or (len(fields) == 6 and not _has_question(fields))
    marked = text.lstrip().startswith("@") or bool(_ZONE.match(text))
    return marked or plain or _has_command(fields)


def _has_command(fields: list[str]) -> bool:
    """Whether a command is behind five fields: a long name of a weekday, MONDAY, is none."""
    tail = fields[5:]
    if not tail or all(_FIELD.fullmatch(each) for each in tail):
        return False
    return not _WEEKDAY_WORD.fullmatch(tail[0])


def is_plain(text: str) -> bool:
    """Whether a line has five or six fields and nothing that only crontabs have."""
    fields = text.split()
    return len(fields) in (5, 6) and not re.search(r"[@=~?]|(^|,)[HR](\(|/|\s)", text)


def _has_question(fields: list[str]) -> bool:
    return any("?" in each for each in fields)


def convert(text: str, zone: str, zones: Zones) -> dict[str, Any]:
    """The members of a timing. Raises RefusedError."""
    own = _ZONE.match(text)
    if own is not None:
        name = own[1].strip("\"'")
        if name not in zones.names:
            raise RefusedError(f"the zone {zones.what_is_no_zone(name)}")
        if zone not in ("UTC", name):
            raise RefusedError(f"it names the zone {name}, and zone is {zone}")
        return {**convert(own[2], name, zones), "zone": name}
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
    return members_of([*line, *year], _DAY, CRON_WEEKDAY, zone, zones, both=both)


def _nickname(text: str) -> dict[str, Any]:
    word, _, rest = text.partition(" ")
    if word.upper() == "@EVERY":
        parts = _PART.findall(rest)
        if "".join(number + unit for number, unit in parts) != rest.strip() or not parts:
            raise RefusedError(f"@every has a time such as 1h30m, not {rest!r}")
        return {"interval_ms": round(sum(float(n) * _UNITS_MS[unit] for n, unit in parts))}
    if word.upper() == "@REBOOT":
        raise RefusedError("@reboot has no times: send a message when your program starts")
    found = NICKNAMES.get(word.upper())
    if found is None:
        raise RefusedError(f"{word} is no nickname: write five or six fields")
    return {"cron": found}
