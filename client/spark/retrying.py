"""The wait before a retry.

`Retry-After` takes precedence, up to a cap. Without it, the wait doubles from `retryWaitMs` up to a
cap, with jitter against a thundering herd of tasks.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

RETRY_AFTER_S_MAX: Final = 30.0
"""The cap of Retry-After: a task must not seem to hang for an hour."""
WAIT_S_MAX: Final = 10.0
PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
"""Transient statuses. 507 too: disk space is freed when hours have ended."""


def wait_s(tries: int, retry_after_s: float | None, first_ms: int, random: float) -> float:
    """Seconds to wait before try `tries` + 1; `random` is in [0, 1)."""
    assert tries >= 1
    if retry_after_s is not None:
        # Up to 10 % more than requested, so that tasks with the same header do not collide.
        return min(retry_after_s, RETRY_AFTER_S_MAX) * (1 + 0.1 * random)
    longest = min(first_ms / 1000 * 2.0 ** min(tries - 1, 32), WAIT_S_MAX)
    return longest * (0.5 + 0.5 * random)


def retry_after_s(header: str | None, now: datetime | None = None) -> float | None:
    """Parse a `Retry-After` header, a number or a date. None if it is invalid."""
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
