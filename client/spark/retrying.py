"""How long to wait before a call is tried again, as plain arithmetic.

The one rule: the broker's word wins. `Retry-After` is followed, up to a cap; without it the wait
doubles from `retryWaitMs` up to a cap, and is spread so that many tasks do not come back at once.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

RETRY_AFTER_S_MAX: Final = 30.0
"""A proxy that says an hour is not obeyed: Spark would see a task that hangs."""
WAIT_S_MAX: Final = 10.0
PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
"""Statuses that another try may not meet. 507 too: the disk gets room when hours have ended."""


def wait_s(tries: int, retry_after_s: float | None, first_ms: int, random: float) -> float:
    """Before try `tries` + 1, with `random` in [0, 1)."""
    assert tries >= 1
    if retry_after_s is not None:
        # A little more than asked, so that those who were told the same do not meet again.
        return min(retry_after_s, RETRY_AFTER_S_MAX) * (1 + 0.1 * random)
    longest = min(first_ms / 1000 * 2.0 ** min(tries - 1, 32), WAIT_S_MAX)
    return longest * (0.5 + 0.5 * random)


def retry_after_s(header: str | None, now: datetime | None = None) -> float | None:
    """Seconds of a `Retry-After` header (a number or a date); None if it says nothing."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            when = parsedate_to_datetime(header)
        except ValueError:
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        seconds = (when - (now or datetime.now(UTC))).total_seconds()
    return max(seconds, 0.0) if math.isfinite(seconds) else None
