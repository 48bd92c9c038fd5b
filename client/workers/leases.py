"""Which leases to extend, and which have ended.

A lease is extended at half-time while any of its messages waits or is handled in this process. It
has ended when its time has passed and no answer has extended it, even if an extension is in
progress. Times are seconds of one monotonic clock; nothing is sent here.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Final

from delaylog.client.workers.held import Hold

# A failed extension is retried after a twentieth of the lease, so nine more tries fit before the
# lease ends.
RETRY_SHARE: Final = 0.05


class LeaseBook:
    """The open leases of one consumer."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._queue: list[tuple[float, int, Hold]] = []
        """A heap by time. A hold is in it once, except while it is being extended."""
        self._numbers = count()

    def begun(self, now_s: float, *, desk: object, port: int) -> Hold:
        """Add a lease that the broker granted in an answer received at `now_s`."""
        hold = Hold(
            desk, port, until_s=now_s + self._lease_s, extend_at_s=now_s + self._lease_s / 2
        )
        self._enter(hold.extend_at_s, hold)
        return hold

    def next_at_s(self) -> float | None:
        """When `due` may return something next, or None."""
        return self._queue[0][0] if self._queue else None

    def due(self, now_s: float) -> tuple[list[Hold], list[Hold]]:
        """(leases to extend now, leases that have ended).

        Call `extended` or `missed` for each of the former; the latter are removed.
        """
        extend: list[Hold] = []
        over: list[Hold] = []
        while self._queue and self._queue[0][0] <= now_s:
            hold = heapq.heappop(self._queue)[2]
            if hold.open:
                (over if hold.until_s <= now_s else extend).append(hold)
        return extend, over

    def extended(self, hold: Hold, asked_at_s: float) -> None:
        """Record an extension. The new lease counts from when it was requested."""
        hold.until_s = asked_at_s + self._lease_s
        hold.extend_at_s = asked_at_s + self._lease_s / 2
        self._enter(hold.extend_at_s, hold)

    def missed(self, hold: Hold, now_s: float) -> None:
        """Record a failed extension: schedule a retry, or the end of the lease."""
        self._enter(min(now_s + self._lease_s * RETRY_SHARE, max(now_s, hold.until_s)), hold)

    def _enter(self, at_s: float, hold: Hold) -> None:
        heapq.heappush(self._queue, (at_s, next(self._numbers), hold))
