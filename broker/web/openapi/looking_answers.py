"""JSON schemas of answers that look at a topic: its tail and its forecast."""

from __future__ import annotations

from typing import Final

from delaylog.storage.calls.shapes import TAIL_MAX
from delaylog.storage.messages.members import Schema

_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}


def _object(members: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": members, "required": list(members)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_MESSAGE: Final = _object(
    {
        "id": _TEXT,
        "group": _TEXT,
        "consumer": _TEXT,
        "handed_out_ms": _COUNT,
        "deliver_at_ms": _COUNT,
        "attempts": _COUNT,
        "size": _COUNT,
    }
)
TAIL: Final = _object(
    {
        "messages": {**_list(_MESSAGE), "maxItems": TAIL_MAX},
        "next": _COUNT,
        "complete": {"type": "boolean"},
        "now_ms": _COUNT,
    }
)
_SLOTS: Final = _list(_object({"from_ms": _COUNT, "count": _COUNT, "firings": _COUNT}))
FORECAST: Final = _object(
    {
        "topic": _TEXT,
        "now_ms": _COUNT,
        "minutes": _SLOTS,
        "hours": _SLOTS,
        "later": _COUNT,
        "schedules": _COUNT,
        "schedules_left": {"type": "boolean"},
        "firings_until_ms": _COUNT,
    }
)
