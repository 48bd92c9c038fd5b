"""How long log has waited for each follower, sampled by the leader's poll.

The leader notes how far its log was at each poll. What a follower lacks begins at the first note
beyond its durable end, whose age is the lag: too small by one interval of the poll at most, which
is 20 ms. A follower that is away has a lag that grows, so samples tell of it while it is away.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

from delaylog.broker.engine.watch.histogram import Histogram

BOUNDS: Final = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds: from one poll to a follower that needs a copy of the folder."""
NOTES_MAX: Final = 4_096
"""While a follower is away, older notes are thinned out, which makes them less exact."""


class FollowerLag:
    """The lag of the followers of one leader."""

    def __init__(self) -> None:
        self.histograms: dict[tuple[str, ...], Histogram] = {}
        """Seconds, by (index of the node,)."""
        self._ends: list[int] = []
        """Ends of the log, ascending, and when it was first seen to have them."""
        self._times_ms: list[int] = []

    def look(self, now_ms: int, end: int, matches: Mapping[int, int]) -> None:
        """Sample the lag now; `matches` = how far the log is durable on each follower. On a node
        that does not lead it is empty.
        """
        ends, times_ms = self._ends, self._times_ms
        done = bisect_right(ends, min(matches.values(), default=end))
        del ends[:done], times_ms[:done]
        if not ends or end > ends[-1]:
            if len(ends) >= NOTES_MAX:
                # In the older half, so that fresh lags stay exact; the oldest note stays.
                older = slice(1, NOTES_MAX // 2, 2)
                del ends[older], times_ms[older]
            ends.append(end)
            times_ms.append(now_ms)
        for node, match in matches.items():
            place = (str(node),)
            if place not in self.histograms:
                self.histograms[place] = Histogram(BOUNDS)
            missing = bisect_right(ends, match)
            lag_ms = now_ms - times_ms[missing] if missing < len(ends) else 0
            self.histograms[place].note(lag_ms / 1000)
