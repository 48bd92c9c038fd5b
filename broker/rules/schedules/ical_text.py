"""The lines of iCalendar around a recurrence rule: what programs and calendars write of one.

A text is a rule alone, or the lines of an event: DTSTART and EXDATE are understood, what says
nothing of times is passed over, and what would change the instants and is not supported is refused
by name. `members_of_text` turns DTSTART into the members `start_ms` and `zone`, so that a stored
rule has its parts and exceptions only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from delaylog.broker.rules.schedules.wall_clock import EPOCH, WallClock
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.contract.errors import MemberError

_NAMES: Final = "BEGIN|END|DTSTART|DTEND|RRULE|EXDATE|EXRULE|RDATE|RECURRENCE-ID|DURATION|UID"
_FOLD: Final = re.compile(rf"\r?\n[ \t](?!\s*(?:{_NAMES})[;:])", re.IGNORECASE)
_BREAK: Final = re.compile(rf"[\r\n]+|\s+(?=(?:{_NAMES})[;:])", re.IGNORECASE)
_PROPERTY: Final = re.compile(r"([A-Za-z][A-Za-z-]*)((?:;[^:;=]+=(?:\"[^\"]*\"|[^:;\"]*))*):(.*)")
_STAMP: Final = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z?))?", re.ASCII)
_OTHER_TIMES: Final = ("VTIMEZONE", "VALARM")
"""Components whose lines say nothing of the event's times."""
_EVENTS: Final = ("VEVENT", "VTODO", "VJOURNAL")
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
    if "\n" in text.strip():
        return re.split(r"[\r\n]+", _FOLD.sub("", text))
    return _BREAK.split(text.replace("\\n", "\n"))


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
