"""The members of a recurring schedule: when it fires, and what it does when it cannot.

Names, bounds and documentation are here; `broker/rules/schedules` gives them their meaning and
checks what a bound cannot say, such as the syntax of a cron expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delaylog.contract.members import Choice, Int, Name, Text
from delaylog.contract.shape import Shape
from delaylog.contract.times import ANCHOR_MS_MIN, TimeMs

GAPS: Final = ("next", "shift", "skip")
FOLDS: Final = ("first", "second", "both")
CATCH_UPS: Final = ("none", "latest", "all")
OVERLAPS: Final = ("allow", "skip", "buffer_one", "replace")
DIALECTS: Final = ("aws", "quartz", "spring", "croniter", "vixie", "systemd", "ics")
"""Forms of other schedulers that `from` names."""
INSTANT_MS_MAX: Final = 221_845_392_000_000
"""Year 9000: no schedule fires from there on. Python's dates end with the year 9999."""
PERIOD_MS_MAX: Final = 366 * 86_400_000
"""The longest interval, jitter and catch-up window: a year."""
CRON_BYTES_MAX: Final = 256
RRULE_BYTES_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class PrintableName(Name):
    """A name that looks like what it is: people tell schedules apart by their names."""

    def check(self, value: Any, limits: object = None, item: int | None = None) -> bytes:
        """The name."""
        raw = Name.check(self, value, limits, item)
        # Separators other than the space, and marks that are invisible or turn the text around.
        if not value.isprintable() or value != value.strip():
            raise self.wrong(
                f"must have printable characters only and no space at its ends, not {value!a}", item
            )
        if value in (".", ".."):
            # Browsers and curl remove such names from paths: a pause would pause the topic.
            raise self.wrong("must not be . or ..", item)
        return raw


NAME: Final = PrintableName(
    "schedule",
    "The name, unique in its topic.",
    200,
    r"^[^~\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$",
    "must not be empty, begin with ~ or have control characters",
)
"""With `@` and an instant behind it, a name is an id."""
NOTE: Final = Text("note", "Why it is paused.", 1_000)

TIMING_MEMBERS: Final = (
    Text("cron", "Five fields, or six with the second first; local time.", CRON_BYTES_MAX),
    Int("interval_ms", "Elapsed time between instants, from start_ms.", 1, PERIOD_MS_MAX),
    Text(
        "rrule",
        "A recurrence rule (RFC 5545), from start_ms; local time. It may have lines DTSTART and "
        "EXDATE.",
        RRULE_BYTES_MAX,
    ),
    Text("zone", "IANA zone of cron and rrule; UTC if absent.", 64),
    Choice(
        "gap",
        "What a time does that the clocks skip: fire right after the change (next, for cron), "
        "later by the skipped time (shift, for rules), or not (skip).",
        GAPS,
    ),
    Choice("fold", "Which pass counts for a time that the clocks repeat.", FOLDS),
    TimeMs(
        "start_ms",
        "No instant is before it; Unix ms. It may be long past, as the anchor of a rule.",
        0,
        INSTANT_MS_MAX,
        ANCHOR_MS_MIN,
    ),
    TimeMs("end_ms", "Instants are before it; Unix ms.", 0, INSTANT_MS_MAX),
    Int("count", "Number of firings, after which the schedule ends.", 1, 2**53),
)
RULE_MEMBERS: Final = (
    Int("jitter_ms", "Each firing is late by a stable share of it.", 0, PERIOD_MS_MAX),
    Choice("catch_up", "Which instants of an outage fire after it.", CATCH_UPS),
    Int("catch_up_window_ms", "How late an instant may fire after an outage.", 0, PERIOD_MS_MAX),
    Choice("overlap", "What a firing does while the last one's message is open.", OVERLAPS),
)
TIMING: Final = Shape(
    "Timing",
    *(
        Int(each.name, each.doc, each.low, each.high) if isinstance(each, TimeMs) else each
        for each in TIMING_MEMBERS
    ),
    doc="the timing of a schedule",
)
"""A timing that a broker has made or stored. Calls check the units of times, but a broker's clock,
the DTSTART of a rule, and a schedule of an older release may be before 1973.
"""


def check_times(members: Mapping[str, Any]) -> None:
    """Raise MemberError for a time of a timing in another unit than milliseconds."""
    for each in TIMING_MEMBERS:
        if isinstance(each, TimeMs) and members.get(each.name) is not None:
            each.check(members[each.name])


RULES: Final = Shape("Rules", *RULE_MEMBERS, doc="the rules of a schedule")
