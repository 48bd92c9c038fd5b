"""Which leases are to be extended, and which are over.

A lease is extended when half of it is gone, for as long as one of its messages waits or runs in
this process. The one rule: a lease counts as over when its time has passed and no answer gave it
more, whatever was tried meanwhile. Time comes in as seconds of one steady clock; nothing is sent.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import Final

from delaylog.client.workers.held import Hold

# After an extension that failed, a twentieth of the lease passes before the next try, so nine
# more fit before it is over.
RETRY_SHARE: Final = 0.05


class LeaseBook:
    """The open leases of one consumer."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._queue: list[tuple[float, int, Hold]] = []
        """By time. A hold is in it once, but for the time in which it is being extended."""
        self._numbers = count()

    def begun(self, now_s: float, *, desk: object, port: int) -> Hold:
        """A lease that the broker gave by an answer which came now."""
        hold = Hold(
            desk, port, until_s=now_s + self._lease_s, extend_at_s=now_s + self._lease_s / 2
        )
        self._enter(hold.extend_at_s, hold)
        return hold

    def next_at_s(self) -> float | None:
        """When `due` may have something."""
        return self._queue[0][0] if self._queue else None

    def due(self, now_s: float) -> tuple[list[Hold], list[Hold]]:
        """(leases to extend now, leases that are over).

        Each of the first is answered for by `extended` or `missed`; the others are forgotten.
        """
        extend: list[Hold] = []
        over: list[Hold] = []
        while self._queue and self._queue[0][0] <= now_s:
            hold = heapq.heappop(self._queue)[2]
            if hold.open:
                (over if hold.until_s <= now_s else extend).append(hold)
        return extend, over

    def extended(self, hold: Hold, asked_at_s: float) -> None:
        """The broker gave a whole lease more, some time after it was asked."""
        hold.until_s = asked_at_s + self._lease_s
        hold.extend_at_s = asked_at_s + self._lease_s / 2
        self._enter(hold.extend_at_s, hold)

    def missed(self, hold: Hold, now_s: float) -> None:
        """Nobody answered: it is tried again, and looked at when its time has passed."""
        self._enter(min(now_s + self._lease_s * RETRY_SHARE, max(now_s, hold.until_s)), hold)

    def _enter(self, at_s: float, hold: Hold) -> None:
        heapq.heappush(self._queue, (at_s, next(self._numbers), hold))
