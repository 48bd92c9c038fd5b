"""Spring: `second minute hour day-of-month month day-of-week`, Sunday is 0 or 7.

Both days must match (documentation of CronExpression), steps of weekdays count from Monday.
"""

from __future__ import annotations

import re
from typing import Any, Final

from delaylog.broker.rules.schedules.dialects import vixie
from delaylog.broker.rules.schedules.dialects.fields import MONDAY_FIRST, Field
from delaylog.broker.rules.schedules.dialects.lines import fields_of, members_of
from delaylog.broker.rules.schedules.zones import Zones

WHAT: Final = "second, minute, hour, day of month, month and day of week"
_DAY: Final = Field("day of month", 1, 31, special=frozenset({"L", "L-n", "LW", "nW"}))


class _Weekday(Field):
    """Monday is 1 and Sunday 7; 0 is Sunday, too."""

    __slots__ = ()

    def term_values(self, term: str) -> list[int]:
        """A range that begins on Sunday counts from it: 0-6/2 is SUN, TUE, THU and SAT."""
        whole_week = re.sub(r"^(0|[07]-7)(?=/)|^[07]-7$", "0-6", term)
        return Field.term_values(self, whole_week)

    def _value(self, text: str, term: str) -> int:
        return Field._value(self, "7" if text == "0" else text, term)


_WEEKDAY: Final = _Weekday(
    "day of week", 1, 7, MONDAY_FIRST, 1, special=frozenset({"nL", "n#k"}), sunday=7
)


def is_line(text: str) -> bool:
    """Whether a text has a form of Spring that is not ours."""
    fields = text.split()
    return len(fields) == 6 and "?" in (fields[3], fields[5])


def convert(text: str, zone: str, zones: Zones) -> dict[str, Any]:
    """The members of a timing. Raises RefusedError."""
    if text.lstrip().startswith("@"):
        return vixie.convert(text, zone, zones)
    return members_of(fields_of(text, (6,), WHAT), _DAY, _WEEKDAY, zone, zones, both=True)
