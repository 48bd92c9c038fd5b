"""Durations and times of the command line, as a person writes and reads them.

In: `90s`, `1d12h`, `500ms`; `2026-12-24T09:00` with a zone or in the local one, `+2h`, `now`. Out:
the same durations, and ISO times with milliseconds: local ones with their offset on a terminal, in
UTC elsewhere. A number without a unit is refused, since nobody sees whether it means seconds or
milliseconds.
"""

from __future__ import annotations

import re
import shlex
import sys
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any, Final

UNITS_MS: Final = {
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}
SPAN_FORM: Final = "write a number and a unit, such as 500ms, 90s, 5m, 2h, 7d or 1d12h"
TIME_FORM: Final = (
    "write an ISO time, such as 2026-12-24T09:00 (local), 2026-12-24T08:00Z or 2026-12-24, or +2h"
)
NEVER_MS: Final = -1
"""`never` as a time to live."""
_IDS: Final = ("id", "last_id", "held_by")
"""Members that are ids of messages."""
_EIGHTHS: Final = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_SHOWN: Final = ("d", "h", "m", "s", "ms")
_PART: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|[smhdw])")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?\Z")
_CLOCK: Final = re.compile(r"([01]?[0-9]|2[0-3]):[0-5][0-9]\Z")
_TIMES: Final = frozenset(
    {
        *("at", "now", "due", "until", "since", "through", "wall", "from", "oldest"),
        *("begun", "ended", "created", "used"),
        *("start", "end", "next", "fired", "buffered", "instant"),
    }
)
"""Last words of the names of times; other names that end with `_ms` are of durations."""


def parse_span(text: str) -> int:
    """The milliseconds of a duration; `0` needs no unit. Raises ValueError."""
    if text == "0":
        return 0
    if _NUMBER.match(text):
        raise ValueError(f"{text} has no unit: {SPAN_FORM}")
    parts = _parts(text)
    if not parts:
        units = "units are lower case; " if _parts(text.lower()) else ""
        raise ValueError(f"{text!r} is not a duration: {units}{SPAN_FORM}")
    return round(sum(float(number) * UNITS_MS[unit] for number, unit in parts))


def is_span(text: str) -> bool:
    """Whether a text is a duration with units."""
    return bool(_parts(text))


def _parts(text: str) -> list[tuple[str, str]]:
    """The numbers and units of a duration; empty for any other text."""
    parts = _PART.findall(text)
    return parts if "".join(map("".join, parts)) == text else []


def parse_lifetime(text: str) -> int:
    """As `parse_span`, or `never`, which is -1."""
    return NEVER_MS if text == "never" else parse_span(text)


def is_local(text: str) -> bool:
    """Whether a text is a time without an offset from UTC."""
    try:
        return datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        return False


def parse_time(text: str, now_ms: int, zone: tzinfo | None = None) -> int:
    """The Unix milliseconds of a time; `+2h` and `-2h` count from now. Raises ValueError.

    `zone`: that of a time without an offset; None: this machine's.
    """
    if text == "now":
        return now_ms
    if _NUMBER.match(text):
        raise ValueError(f"{text} may mean seconds or milliseconds: {TIME_FORM}")
    if text[:1] in ("+", "-"):
        span_ms = parse_span(text[1:])
        return now_ms + span_ms if text[0] == "+" else now_ms - span_ms
    if is_span(text):
        raise ValueError(f"{text} is a duration: write +{text} or -{text}, counted from now")
    if _CLOCK.match(text):
        raise ValueError(f"{text} has no date: write {_next(text, now_ms)} for the next {text}")
    try:
        at = datetime.fromisoformat(text)
        if zone is not None and at.tzinfo is None:
            at = at.replace(tzinfo=zone)
        return round(at.timestamp() * 1000)
    except (ValueError, OverflowError):
        # The second is of a year that some zone has no seconds for.
        raise ValueError(f"{text!r} is not a time: {TIME_FORM}") from None


def _next(clock: str, now_ms: int) -> str:
    """The next time of this machine's zone at which clocks show this, in ISO form."""
    now = datetime.fromtimestamp(now_ms / 1000)  # noqa: DTZ006 (the local zone is meant)
    at = datetime.combine(now, time.fromisoformat(clock.zfill(5)))
    return (at if at > now else at + timedelta(days=1)).isoformat("T", "minutes")


def span_text(span_ms: int) -> str:
    """A duration, in units that `parse_span` reads."""
    if span_ms < 0:
        return f"-{span_text(-span_ms)}"
    parts = []
    for unit in _SHOWN:
        count, span_ms = divmod(span_ms, UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def time_text(at_ms: int) -> str:
    """A time: local on a terminal, such as 2026-12-24T09:00:00.000+01:00, in UTC elsewhere."""
    return _iso(at_ms, None) if sys.stdout.isatty() else utc_text(at_ms)


def utc_text(at_ms: int) -> str:
    """A time in UTC, such as 2026-12-24T08:00:00.000Z."""
    return _iso(at_ms, UTC)


def _iso(at_ms: int, zone: tzinfo | None) -> str:
    try:
        at = datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(zone)
    except (ValueError, OverflowError, OSError):
        # No calendar has it.
        return f"{at_ms}ms"
    at += timedelta(milliseconds=at_ms % 1000)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def id_text(id: str) -> str:
    """An id; on a terminal as a shell takes it, since people copy it from there."""
    return shlex.quote(id) if sys.stdout.isatty() else id


def plain_text(text: str) -> str:
    """The text on one line, and with escapes for what a terminal would obey, not show."""
    return text if text.isprintable() else repr(text)[1:-1]


def plain_lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(plain_text, text.split("\n")))


def plain_name(name: str) -> str:
    """The name of a member without its unit, which its value shows."""
    return name.removesuffix("_ms")


def value_text(name: str, value: Any) -> str:
    """The value of a member of an answer as text; `name` says whether it is a time."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ",".join(f"{plain_name(key)}={value_text(key, one)}" for key, one in value.items())
    if isinstance(value, list):
        return ",".join(value_text(name, one) for one in value)
    if name.endswith("_ms") and isinstance(value, int):
        if is_time(name):
            return time_text(value) if value else "-"
        return "never" if name == "ttl_ms" and value == NEVER_MS else span_text(value)
    if name in ("due_from", "due_to"):
        return time_text(value)
    if name in _IDS:
        return id_text(value)
    return str(value)


def is_time(name: str) -> bool:
    """Whether a member is a time, as its name says."""
    return plain_name(name).rpartition("_")[2] in _TIMES or name in ("due_from", "due_to")


def bar(share: float, width: int) -> str:
    """A bar of `share` of `width` columns, exact to an eighth; anything above 0 is visible."""
    eighths = max(round(share * width * 8), 1) if share > 0 else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]
