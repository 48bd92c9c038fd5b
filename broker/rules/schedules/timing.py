"""The timing of a schedule: a value, and the checks that its members agree.

Exactly one of `cron`, `interval_ms` and `rrule` is given. An interval and a rule are anchored at
`start_ms`; a cron expression needs no anchor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from delaylog.broker.rules.schedules.cron import check_cron, parsed_cron
from delaylog.broker.rules.schedules.rrule_text import parsed_rrule
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.contract.calls.schedules import TIMING
from delaylog.contract.members import MemberError

FORMS: Final = ("cron", "interval_ms", "rrule")


@dataclass(frozen=True, slots=True)
class Timing:
    """When a schedule fires; see TIMING_MEMBERS for units and bounds. Equal timings are equal."""

    cron: str | None = None
    interval_ms: int | None = None
    rrule: str | None = None
    zone: str = "UTC"
    gap: str = "next"
    fold: str = "first"
    start_ms: int | None = None
    end_ms: int | None = None
    count: int | None = None

    @property
    def elapsed(self) -> bool:
        """Whether it follows elapsed time over a clock change; gap and fold then mean nothing."""
        if self.cron is not None:
            return parsed_cron(self.cron).elapsed
        return self.interval_ms is not None

    def as_dict(self) -> dict[str, Any]:
        """The members that are not None."""
        values = {name: getattr(self, name) for name in _MEMBERS}
        return {name: value for name, value in values.items() if value is not None}


_MEMBERS: Final = tuple(each.name for each in fields(Timing))
assert TIMING.names == set(_MEMBERS)


def check_timing(members: Mapping[str, Any], zones: Zones = PACKAGED) -> Timing:
    """The timing of checked or unchecked members. Raises MemberError that names the member.

    Whether it ever fires is not checked here: `next_instant` says so.
    """
    taken: dict[str, Any] = TIMING.take(dict(members))
    given: dict[str, Any] = {name: value for name, value in taken.items() if value is not None}
    for name, value in given.items():
        given[name] = value.decode() if isinstance(value, bytes) else value
    timing = Timing(**given)
    forms = [name for name in FORMS if name in given]
    if len(forms) != 1:
        found = " and ".join(forms) or "none"
        what = f"give exactly one of {', '.join(FORMS)}, not {found}"
        raise MemberError(what, field=(forms or FORMS)[-1])
    if timing.zone not in zones.names:
        what = zones.what_is_no_zone(timing.zone)
        raise MemberError(f"zone {what}", field="zone", what=what)
    if timing.cron is not None:
        check_cron(timing.cron, timing.zone, zones)
        parsed_cron(timing.cron)
    elif timing.start_ms is None:
        what = f"is missing: {forms[0]} is counted from it"
        raise MemberError(f"start_ms {what}", field="start_ms", what=what)
    if timing.rrule is not None:
        parsed_rrule(timing.rrule)
        if "gap" not in given:
            # RFC 5545, 3.3.10: such a time has the offset from before the change.
            timing = replace(timing, gap="shift")
    if timing.start_ms is not None and timing.end_ms is not None:
        if timing.end_ms <= timing.start_ms:
            what = f"must be after start_ms {timing.start_ms}, not {timing.end_ms}"
            raise MemberError(f"end_ms {what}", field="end_ms", what=what)
    return timing
