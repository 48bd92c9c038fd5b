"""Calls of recurring schedules: what a topic is sent again and again, and when."""

from __future__ import annotations

from typing import Any, Final

from delaylog.contract.calls import shapes
from delaylog.contract.calls.call import ApiCall, Takes
from delaylog.contract.calls.schedule_members import (
    DIALECTS,
    INSTANT_MS_MAX,
    NOTE,
    RULE_MEMBERS,
    TIMING_MEMBERS,
)
from delaylog.contract.members import Choice, Int, Member, QueryInt
from delaylog.contract.message_fields import BODY, BODY_BASE64, FIELDS
from delaylog.contract.shape import Shape
from delaylog.contract.times import ANCHOR_MS_MIN, TimeMs

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
