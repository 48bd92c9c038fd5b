"""The dialects that are known, by name: the recognisers of foreign lines, and their conversions.

`readings` says what a line means that is not ours; `converted` converts one whose dialect the
caller names. The dialect `ics` is iCalendar (RFC 5545): the lines of an event, or its rule alone;
`rrule` is that of the RFC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from delaylog.broker.rules.schedules.dialects.cron_lines import (
    from_aws,
    from_croniter,
    from_quartz,
    from_spring,
    from_vixie,
    is_aws_line,
    is_croniter_line,
    is_plain_vixie,
    is_quartz_line,
    is_spring_line,
    is_vixie_line,
)
from delaylog.broker.rules.schedules.dialects.fields import RefusedError
from delaylog.broker.rules.schedules.dialects.lines import written
from delaylog.broker.rules.schedules.dialects.systemd import from_systemd, is_systemd_line
from delaylog.broker.rules.schedules.rrule_text import members_of_text
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.contract.calls.schedules import DIALECTS, RRULE_BYTES_MAX
from delaylog.contract.members import MemberError, Text

# ------------------------------------------------------------------------------------ iCalendar

_SIGNS: Final = re.compile(r"FREQ\s*=|RRULE\s*[:;]|DTSTART|BEGIN:V", re.IGNORECASE)


def is_ics_line(text: str) -> bool:
    """Whether a text has a recurrence rule."""
    return bool(_SIGNS.search(text))


def from_ics(text: str, zone: str, zones: Zones) -> dict[str, Any]:
    """The members of a timing. Raises MemberError that names `rrule`."""
    given = {"rrule": text} if zone == "UTC" else {"rrule": text, "zone": zone}
    return members_of_text(given, zones)


# --------------------------------------------------------------------------------- all dialects


class Dialect(NamedTuple):
    """How a dialect is called, recognised and converted."""

    title: str
    is_line: Callable[[str], bool]
    convert: Callable[[str, str, Zones], dict[str, Any]]
    """(line, zone of the schedule, zones) to members of a timing. Raises RefusedError."""
    certain: Callable[[str], bool] | None = None
    """Whether a line can be of no other dialect; None: whatever `is_line` passes."""


TABLE: Final[Mapping[str, Dialect]] = {
    "aws": Dialect("AWS EventBridge (Sunday is 1)", is_aws_line, from_aws),
    "quartz": Dialect("Quartz (Sunday is 1)", is_quartz_line, from_quartz),
    "spring": Dialect("Spring (Monday is 1)", is_spring_line, from_spring),
    "croniter": Dialect(
        "croniter (the second is the sixth field)",
        is_croniter_line,
        from_croniter,
        lambda _: False,
    ),
    "vixie": Dialect("crontab", is_vixie_line, from_vixie, lambda text: not is_plain_vixie(text)),
    "systemd": Dialect("systemd", is_systemd_line, from_systemd),
    "ics": Dialect("iCalendar", is_ics_line, from_ics),
}
assert set(TABLE) == set(DIALECTS)


def readings(text: str, zone: str = "UTC", zones: Zones = PACKAGED) -> str:
    """What a line that is not ours means in the dialects that may have it; "" if in none."""
    found: dict[str, list[str]] = {}
    refused = []
    for dialect in TABLE.values():
        if not dialect.is_line(text):
            continue
        try:
            members = dialect.convert(text, zone, zones)
            found.setdefault(written(members), []).append(dialect.title)
        except (RefusedError, MemberError) as error:
            if dialect.certain is None or dialect.certain(text):
                refused.append(f"as a line of {dialect.title}, {error}")
    if not found:
        return "; ".join(refused)
    if len(found) == 1:
        ((members_text, titles),) = found.items()
        return f"as a line of {' or '.join(titles)}, write {members_text}"
    means = [f"{' or '.join(titles)}: {each}" for each, titles in found.items()]
    return f"it has {len(found)} readings, write the one that is meant: {'; '.join(means)}"


def with_converted(members: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Members of which `from` names a dialect: (those of ours, what its line says).

    None: there is no `from`. Raises MemberError.
    """
    out = dict(members)
    name = out.pop("from", None)
    if name is None:
        return out, None
    if name not in TABLE:
        what = f"must be one of {', '.join(TABLE)}, not {name!r}"
        raise MemberError(f"from {what}", field="from", what=what)
    lines = [form for form in ("cron", "rrule") if isinstance(out.get(form), str)]
    for form in lines:
        # A line of a crontab may have a long command.
        Text(form, "A line of another scheduler.", RRULE_BYTES_MAX).check(out[form])
    if len(lines) != 1:
        what = "names the dialect of a line: give the line as cron or as rrule"
        raise MemberError(f"from {what}", field="from", what=what)
    zone = out.get("zone")
    said = converted(name, out.pop(lines[0]), zone if isinstance(zone, str) else "UTC")
    for member in said.keys() & out.keys():
        if out[member] is not None and out[member] != said[member] and member != "gap":
            what = f"is {said[member]} by the line, not {out[member]}: leave it out"
            raise MemberError(f"{member} {what}", field=member, what=what)
    return {**said, **{name: value for name, value in out.items() if value is not None}}, said


def converted(name: str, text: str, zone: str = "UTC", zones: Zones = PACKAGED) -> dict[str, Any]:
    """The members that a line of a dialect says. Raises MemberError that names `cron`."""
    dialect = TABLE[name]
    try:
        return dialect.convert(text, zone, zones)
    except RefusedError as error:
        what = f"{text!r} is not converted from {dialect.title}: {error}"
        raise MemberError(f"cron {what}", field="cron", what=what) from error
