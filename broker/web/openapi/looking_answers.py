"""JSON schemas of answers that look at a topic: its tail and its forecast."""

from __future__ import annotations

from typing import Final

from delaylog.broker.web.openapi.schemas import COUNT, FLAG, INT, TEXT, list_of, object_of
from delaylog.contract.calls.shapes import TAIL_MAX

_MESSAGE: Final = object_of(
    id=TEXT,
    group=TEXT,
    consumer=TEXT,
    handed_out_ms=INT,
    deliver_at_ms=INT,
    attempts=COUNT,
    size=COUNT,
)
TAIL: Final = object_of(
    messages={**list_of(_MESSAGE), "maxItems": TAIL_MAX}, next=COUNT, complete=FLAG, now_ms=INT
)
_SLOTS: Final = list_of(object_of(from_ms=INT, count=COUNT, firings=COUNT))
FORECAST: Final = object_of(
    topic=TEXT,
    now_ms=INT,
    minutes=_SLOTS,
    hours=_SLOTS,
    later=COUNT,
    schedules=COUNT,
    schedules_left=FLAG,
    firings_until_ms=INT,
)
