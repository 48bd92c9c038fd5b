"""The dialects that are known, by name: the recognisers of foreign lines, and their conversions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from delaylog.broker.rules.schedules.dialects import (
    aws,
    croniter,
    ics,
    quartz,
    spring,
    systemd,
    vixie,
)
from delaylog.broker.rules.schedules.dialects.fields import RefusedError
from delaylog.broker.rules.schedules.dialects.lines import written
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.contract.calls.schedule_members import DIALECTS
from delaylog.contract.errors import MemberError


class Dialect(NamedTuple):
    """How a dialect is called, recognised and converted."""

    title: str
    is_line: Callable[[str], bool]
    convert: Callable[[str, str, Zones], dict[str, Any]]
    """(line, zone of the schedule, zones) to members of a timing. Raises RefusedError."""
    certain: Callable[[str], bool] | None = None
    """Whether a line can be of no other dialect; None: whatever `is_line` passes."""


TABLE: Final[Mapping[str, Dialect]] = {
    "aws": Dialect("AWS EventBridge (Sunday is 1)", aws.is_line, aws.convert),
    "quartz": Dialect("Quartz (Sunday is 1)", quartz.is_line, quartz.convert),
    "spring": Dialect("Spring (Monday is 1)", spring.is_line, spring.convert),
    "croniter": Dialect(
        "croniter (the second is the sixth field)",
        croniter.is_line,
        croniter.convert,
        lambda _: False,
    ),
    "vixie": Dialect(
        "crontab", vixie.is_line, vixie.convert, lambda text: not vixie.is_plain(text)
    ),
    "systemd": Dialect("systemd", systemd.is_line, systemd.convert),
    "ics": Dialect("iCalendar", ics.is_line, ics.convert),
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
