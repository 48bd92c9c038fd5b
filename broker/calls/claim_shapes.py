"""Shapes of the calls of claims."""

from __future__ import annotations

from typing import Final

from delaylog.broker.calls.shapes import GROUP, LEASE_MS, TAGS_MODE, WANTED_TAGS
from delaylog.storage.members import INT64_MAX, Int, QueryInt, Shape

CLAIM_MAX: Final = Int(
    "max", "At most so many messages; absent: as many as a claim may have.", 1, "claim_rows_max"
)
MAKE_CLAIM: Final = Shape(
    "Make a claim", "the body", GROUP, CLAIM_MAX, LEASE_MS, WANTED_TAGS, TAGS_MODE
)
EXTEND_CLAIM: Final = Shape("Extend a claim", "the body", GROUP, LEASE_MS)
SETTLE_CLAIM: Final = Shape("Settle a claim", "the body", GROUP)
FROM: Final = QueryInt("from", "From this row, counted from 0.", 0, INT64_MAX)
TO: Final = QueryInt(
    "to",
    "Up to but not with this row; beyond the last one means all.",
    0,
    INT64_MAX,
    default=INT64_MAX,
)
ROWS: Final = (GROUP, FROM, TO)
