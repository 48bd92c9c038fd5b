"""JSON schemas of schedules and of their firings in answers."""

from __future__ import annotations

from typing import Final

from delaylog.broker.rules.schedules.local_time import MARKS
from delaylog.broker.web.openapi.schemas import COUNT, TEXT, TEXT_OR_NULL, object_of
from delaylog.contract.calls.schedule_members import CATCH_UPS, FOLDS, GAPS, OVERLAPS
from delaylog.contract.calls.schedules import MESSAGE_FIELDS
from delaylog.contract.members import Schema

_COUNT_OR_NULL: Final[Schema] = {"type": ["integer", "null"], "minimum": 0}
_PLACE: Final[dict[str, Schema]] = {"topic": TEXT, "namespace": TEXT, "schedule": TEXT}
_MESSAGE: Final = {member.name: member.schema(None) for member in MESSAGE_FIELDS}


SCHEDULE: Final[Schema] = object_of(
    {"body": TEXT, "body_base64": {"type": "string", "contentEncoding": "base64"}},
    **_PLACE,
    state={"enum": ["running", "paused", "ended"]},
    note=TEXT_OR_NULL,
    cron=TEXT_OR_NULL,
    interval_ms=_COUNT_OR_NULL,
    rrule=TEXT_OR_NULL,
    zone=TEXT,
    gap={"enum": list(GAPS)},
    fold={"enum": list(FOLDS)},
    start_ms=_COUNT_OR_NULL,
    end_ms=_COUNT_OR_NULL,
    count=_COUNT_OR_NULL,
    jitter_ms=COUNT,
    catch_up={"enum": list(CATCH_UPS)},
    catch_up_window_ms=COUNT,
    overlap={"enum": list(OVERLAPS)},
    **_MESSAGE,
    explain=TEXT,
    next_ms=_COUNT_OR_NULL,
    due_ms=_COUNT_OR_NULL,
    n=COUNT,
    fired_ms=_COUNT_OR_NULL,
    buffered_ms=_COUNT_OR_NULL,
    skipped=COUNT,
)
"""Without the right for bodies, `body` is absent and `headers` are null."""
_FIRING: Final = object_of(
    instant_ms=COUNT, due_ms=COUNT, local=TEXT, change={"enum": [*MARKS, None]}
)
OF_SCHEDULES: Final[dict[str, Schema]] = {
    "Schedule": SCHEDULE,
    "Schedules": object_of(
        schedules={"type": "array", "items": {"$ref": "#/components/schemas/Schedule"}},
        cursor=TEXT_OR_NULL,
    ),
    "Fired": object_of(**_PLACE, id=TEXT, n=COUNT),
    "Backfilled": object_of(
        **_PLACE, instants=COUNT, next_from_ms=_COUNT_OR_NULL, last_due_ms=_COUNT_OR_NULL
    ),
    "Coming": object_of(
        **_PLACE,
        zone=TEXT,
        explain=TEXT,
        converted={"type": ["object", "null"]},
        firings={"type": "array", "items": _FIRING},
    ),
}
