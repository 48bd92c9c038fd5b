"""JSON schemas of schedules and of their firings in answers."""

from __future__ import annotations

from typing import Any, Final

from delaylog.broker.schedules.local_time import MARKS
from delaylog.storage.calls.of_schedules import MESSAGE_FIELDS
from delaylog.storage.calls.schedule_members import CATCH_UPS, FOLDS, GAPS, OVERLAPS
from delaylog.storage.messages.members import Schema

_TEXT: Final[Schema] = {"type": "string"}
_TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_COUNT_OR_NULL: Final[Schema] = {"type": ["integer", "null"], "minimum": 0}
_PLACE: Final[dict[str, Schema]] = {"topic": _TEXT, "namespace": _TEXT, "schedule": _TEXT}
_MESSAGE: Final = {member.name: member.schema(None) for member in MESSAGE_FIELDS}


def _object(optional: dict[str, Schema] | None = None, /, **members: Any) -> Schema:
    return {
        "type": "object",
        "properties": {**members, **(optional or {})},
        "required": list(members),
    }


SCHEDULE: Final[Schema] = _object(
    {"body": _TEXT, "body_base64": {"type": "string", "contentEncoding": "base64"}},
    **_PLACE,
    state={"enum": ["running", "paused", "ended"]},
    note=_TEXT_OR_NULL,
    cron=_TEXT_OR_NULL,
    interval_ms=_COUNT_OR_NULL,
    rrule=_TEXT_OR_NULL,
    zone=_TEXT,
    gap={"enum": list(GAPS)},
    fold={"enum": list(FOLDS)},
    start_ms=_COUNT_OR_NULL,
    end_ms=_COUNT_OR_NULL,
    count=_COUNT_OR_NULL,
    jitter_ms=_COUNT,
    catch_up={"enum": list(CATCH_UPS)},
    catch_up_window_ms=_COUNT,
    overlap={"enum": list(OVERLAPS)},
    **_MESSAGE,
    explain=_TEXT,
    next_ms=_COUNT_OR_NULL,
    due_ms=_COUNT_OR_NULL,
    n=_COUNT,
    fired_ms=_COUNT_OR_NULL,
    buffered_ms=_COUNT_OR_NULL,
    skipped=_COUNT,
)
"""Without the right for bodies, `body` is absent and `headers` are null."""
_FIRING: Final = _object(
    instant_ms=_COUNT, due_ms=_COUNT, local=_TEXT, change={"enum": [*MARKS, None]}
)
OF_SCHEDULES: Final[dict[str, Schema]] = {
    "Schedule": SCHEDULE,
    "Schedules": _object(
        schedules={"type": "array", "items": {"$ref": "#/components/schemas/Schedule"}},
        cursor=_TEXT_OR_NULL,
    ),
    "Fired": _object(**_PLACE, id=_TEXT, n=_COUNT),
    "Backfilled": _object(
        **_PLACE, instants=_COUNT, next_from_ms=_COUNT_OR_NULL, last_due_ms=_COUNT_OR_NULL
    ),
    "Coming": _object(
        **_PLACE, zone=_TEXT, explain=_TEXT, firings={"type": "array", "items": _FIRING}
    ),
}
