"""Calls of recurring schedules: what a topic is sent again and again, and when.

The members of a schedule say when it fires, and what it does when it cannot. Names, bounds and
documentation are here; `broker/rules/schedules` gives them their meaning and checks what a bound
cannot say, such as the syntax of a cron expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delaylog.contract.calls import shapes
from delaylog.contract.calls.call import ApiCall, Takes
from delaylog.contract.members import Choice, Int, Member, Name, QueryInt, Shape, Text
from delaylog.contract.message_fields import BODY, BODY_BASE64, FIELDS
from delaylog.contract.times import ANCHOR_MS_MIN, TimeMs

# ------------------------------------------------------------------------ members of a schedule

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

RRULE: Final = Text(
    "rrule",
    "A recurrence rule (RFC 5545), from start_ms; local time. It may have lines DTSTART and "
    "EXDATE.",
    RRULE_BYTES_MAX,
)
TIMING_MEMBERS: Final = (
    Text("cron", "Five fields, or six with the second first; local time.", CRON_BYTES_MAX),
    Int("interval_ms", "Elapsed time between instants, from start_ms.", 1, PERIOD_MS_MAX),
    RRULE,
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


# ---------------------------------------------------------------------------------------- calls

SCHEDULES: Final = "/v1/topics/{topic}/schedules"
SCHEDULE: Final = "/v1/topics/{topic}/schedules/{schedule}"
PREVIEW_MAX: Final = 1_000

_WHEN: Final[tuple[Member[Any], ...]] = (*TIMING_MEMBERS, *RULE_MEMBERS)
MESSAGE_FIELDS: Final = tuple(field.member for field in FIELDS if field.name not in ("id", "merge"))
"""Fields of a send that a schedule may have: it makes the ids, and they are unique."""
_WHAT: Final[tuple[Member[Any], ...]] = (BODY, BODY_BASE64, *MESSAGE_FIELDS)
_ONE_FORM: Final = [{"required": [name]} for name in ("cron", "interval_ms", "rrule")]
_ONE_BODY: Final = [{"required": ["body"]}, {"required": ["body_base64"]}]
PUT_SCHEDULE: Final = Shape(
    "Schedule to put",
    *_WHEN,
    *_WHAT,
    doc="a schedule",
    rules={"allOf": [{"oneOf": _ONE_FORM}, {"oneOf": _ONE_BODY}]},
)
UPDATE_SCHEDULE: Final = Shape("Change of a schedule", *_WHEN, *_WHAT, doc="a schedule")
FROM: Final = Choice(
    "from", "The scheduler that cron or rrule is a line of; it is converted.", DIALECTS
)
TRY_SCHEDULE: Final = Shape(
    "Schedule to try", *_WHEN, *_WHAT, FROM, doc="a schedule to try", rules={"oneOf": _ONE_FORM}
)
PAUSE_SCHEDULE: Final = Shape("Pause of a schedule", NOTE)
BACKFILL: Final = Shape(
    "Backfill of a schedule",
    TimeMs("from_ms", "Instants from this time on; Unix ms.", 0, INSTANT_MS_MAX, ANCHOR_MS_MIN),
    TimeMs(
        "until_ms",
        "Instants before this time; absent: until now.",
        0,
        INSTANT_MS_MAX,
        ANCHOR_MS_MIN,
    ),
    Int("rate", "At most this many messages a second; absent: all at once.", 1, 1_000_000),
    rules={"required": ["from_ms"]},
)
_NOTHING: Final = Shape("Resume or run a schedule")
FIRINGS: Final = QueryInt("n", "At most this many firings.", 1, PREVIEW_MAX, default=10)
FROM_MS: Final = QueryInt(
    "from_ms", "Instants from this time on; Unix ms, absent: from now on.", 0, INSTANT_MS_MAX
)
UNTIL_MS: Final = QueryInt(
    "until_ms", "Instants before this time.", 0, INSTANT_MS_MAX, default=INSTANT_MS_MAX
)
LIMIT: Final = QueryInt("limit", "At most this many schedules.", 1, shapes.LIST_MAX, default=100)

OF_SCHEDULES: Final = (
    ApiCall(
        "listSchedules",
        f"GET {SCHEDULES}",
        "read",
        "A topic's schedules, page by page, in no particular order.",
        "Schedules",
        query=(LIMIT, shapes.CURSOR),
    ),
    ApiCall("getSchedule", f"GET {SCHEDULE}", "read", "A schedule.", "Schedule"),
    ApiCall(
        "putSchedule",
        f"PUT {SCHEDULE}",
        "admin",
        "Create a schedule, or replace it; an equal one stays as it is.",
        "Schedule",
        Takes(PUT_SCHEDULE),
        problems=(409, 429, 507),
        other=(201, "Schedule"),
        makes=True,
        repeatable=True,
    ),
    ApiCall(
        "updateSchedule",
        f"PATCH {SCHEDULE}",
        "admin",
        "Change the members of a schedule that are named; null: back to the default.",
        "Schedule",
        Takes(UPDATE_SCHEDULE),
        problems=(409, 507),
    ),
    ApiCall(
        "deleteSchedule",
        f"DELETE {SCHEDULE}",
        "admin",
        "Drop a schedule; messages that it has sent stay.",
        "Done",
        problems=(409,),
    ),
    ApiCall(
        "pauseSchedule",
        f"POST {SCHEDULE}/pause",
        "change",
        "Fire nothing until the schedule is resumed.",
        "Schedule",
        Takes(PAUSE_SCHEDULE, needed=False),
        problems=(409,),
    ),
    ApiCall(
        "resumeSchedule",
        f"POST {SCHEDULE}/resume",
        "change",
        "Fire again, from the first instant from now on.",
        "Schedule",
        Takes(_NOTHING, needed=False),
        problems=(409,),
    ),
    ApiCall(
        "runSchedule",
        f"POST {SCHEDULE}/run",
        "change",
        "Fire once at once, also while paused.",
        "Fired",
        Takes(_NOTHING, needed=False),
        problems=(409, 507),
    ),
    ApiCall(
        "backfillSchedule",
        f"POST {SCHEDULE}/backfill",
        "change",
        "Send messages for instants of the past, at a rate.",
        "Backfilled",
        Takes(BACKFILL),
        problems=(409, 507),
    ),
    ApiCall(
        "previewSchedule",
        f"GET {SCHEDULE}/preview",
        "read",
        "The next firings of a schedule, or those of a range, as if it were not paused.",
        "Coming",
        query=(FIRINGS, FROM_MS, UNTIL_MS),
    ),
    ApiCall(
        "trySchedule",
        f"POST {SCHEDULE}/preview",
        "read",
        "The next firings that a schedule would have; nothing is stored.",
        "Coming",
        Takes(TRY_SCHEDULE),
        query=(FIRINGS,),
        repeatable=True,
    ),
)
"""In any namespace, as the calls of topics."""
