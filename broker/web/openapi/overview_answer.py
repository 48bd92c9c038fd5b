"""JSON schema of the overview of all topics."""

from __future__ import annotations

from typing import Final

from delaylog.broker.web.openapi.schemas import (
    COUNT,
    FLAG,
    INT,
    INT_OR_NULL,
    TEXT,
    each,
    list_of,
    object_of,
)
from delaylog.contract.members import Schema

OVERVIEW: Final[Schema] = object_of(
    now_ms=INT,
    **each(COUNT, "topics", "later", "jobs_running", "free_bytes"),
    namespaces=list_of(TEXT),
    counts=object_of(**each(COUNT, "waiting", "ready", "leased", "dead")),
    rates=object_of(**each({"type": "number", "minimum": 0}, "sent", "delivered", "acked")),
    behind=list_of(
        object_of(namespace=TEXT, topic=TEXT, group=TEXT, ready=COUNT, oldest_due_ms=INT_OR_NULL),
    ),
    **each(list_of(object_of(from_ms=INT, count=COUNT)), "minutes", "hours", "seconds"),
    lateness=object_of(
        bounds_ms=list_of(COUNT),
        minutes=list_of(object_of(from_ms=INT, counts=list_of(COUNT))),
    ),
    disk_full=FLAG,
)
