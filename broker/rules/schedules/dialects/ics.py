"""iCalendar (RFC 5545): the lines of an event, or its rule alone; `rrule` is that of the RFC."""

from __future__ import annotations

import re
from typing import Any, Final

from delaylog.broker.rules.schedules.ical_text import members_of_text
from delaylog.broker.rules.schedules.zones import Zones

_SIGNS: Final = re.compile(r"FREQ\s*=|RRULE\s*[:;]|DTSTART|BEGIN:V", re.IGNORECASE)


def is_line(text: str) -> bool:
    """Whether a text has a recurrence rule."""
    return bool(_SIGNS.search(text))


def convert(text: str, zone: str, zones: Zones) -> dict[str, Any]:
    """The members of a timing. Raises MemberError that names `rrule`."""
    given = {"rrule": text} if zone == "UTC" else {"rrule": text, "zone": zone}
    return members_of_text(given, zones)
