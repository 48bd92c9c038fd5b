"""The lateness of hand-outs in each of the last minutes, for the overview of the dashboard.

The host looks every 50 ms. What was handed out since a minute ended counts for the minute of the
look before, so a blocked loop leaves no message out. A restart begins with no minutes.
"""

from __future__ import annotations

from collections import deque
from operator import sub
from typing import Final

from delaylog.broker.engine.topics.series import Series
from delaylog.broker.engine.watch.lateness import Lateness

MINUTE_MS: Final = 60_000
RECENT: Final = 90
"""Minutes."""


class RecentLateness:
    """The recent minutes of one broker. Counts are by bucket of lateness."""

    def __init__(self) -> None:
        self._series: Series | None = None
        self._minute = 0
        self._before: list[int] = []
        """Counts of the engine at the end of the last minute."""
        self._ended: deque[tuple[int, list[int]]] = deque(maxlen=RECENT)
        """Minutes that have ended, in order, with their counts."""

    def look(self, now_ms: int, series: Series) -> None:
        """End a minute if it is over; `series` = those of the present engine."""
        minute = now_ms // MINUTE_MS
        if series is not self._series:
            if self._series is None:
                self._minute = minute
            # The lateness of an engine begins at zero.
            self._series, self._before = series, Lateness().handed_out.counts
        if minute == self._minute:
            return
        # The clock may have been set back.
        while self._ended and self._ended[-1][0] >= self._minute:
            self._ended.pop()
        counts = series.total_lateness().handed_out.counts
        self._ended.append((self._minute, list(map(sub, counts, self._before))))
        self._minute, self._before = minute, counts

    def minutes(self, now_ms: int) -> list[dict[str, int | list[int]]]:
        """`from_ms` and `counts` of each recent minute that has ended."""
        now = now_ms // MINUTE_MS
        return [
            {"from_ms": minute * MINUTE_MS, "counts": counts}
            for minute, counts in self._ended
            if now - RECENT <= minute < now
        ]
