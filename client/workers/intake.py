"""How many messages a consumer asks for: enough to stay busy, not more than it soon works off.

What waits in the process is kept from other processes, so the window is what the handlers do in
a quarter of a second, by how long they took of late: thousands where a handler takes microseconds,
none where it takes seconds; there only as many come as can begin at once. The one rule: beyond
those, at most `prefetch` messages wait.
"""

from __future__ import annotations

from typing import Final

AHEAD_S: Final = 0.25
# After so many messages half of what is known of the handlers' time is of them.
HALF_LIFE: Final = 100
# Of one receive, as the broker allows.
RECEIVE_MAX: Final = 10_000


class Intake:
    """The windows of one consumer's shards.

    `places` is how many messages may be under handlers at once, `ports` the number of shards.
    """

    def __init__(self, *, concurrency: int, places: int, prefetch: int, ports: int) -> None:
        self._concurrency = concurrency
        self._places = places
        self._prefetch = prefetch
        self._ports = ports
        self._count = 0
        self._seconds = 0.0
        self._mean_s: float | None = None

    def handled(self, count: int, seconds: float) -> None:
        """A handler ended: it had so many messages for so long."""
        self._count += count
        self._seconds += seconds

    def window(self) -> int:
        """How many may wait, over all shards."""
        if self._count:
            fresh_s = self._seconds / self._count
            weight = 1 - 0.5 ** (self._count / HALF_LIFE)
            known_s = fresh_s if self._mean_s is None else self._mean_s
            self._mean_s = known_s + (fresh_s - known_s) * weight
            self._count, self._seconds = 0, 0.0
        if self._mean_s is None:
            return 0
        if self._mean_s * self._prefetch <= AHEAD_S * self._concurrency:
            return self._prefetch
        return int(AHEAD_S * self._concurrency / self._mean_s)

    def ask(self, *, waiting_here: int, waiting: int, running: int) -> int:
        """How many to ask one shard for; 0 = none until some are begun.

        `waiting_here` of the `waiting` messages are of that shard.
        """
        share = -(-self.window() // self._ports)
        # A window is filled when half of it is used up, so that answers stay large.
        ahead = share - waiting_here if 2 * waiting_here <= share else 0
        idle = -(-max(0, self._places - running - waiting) // self._ports)
        return min(RECEIVE_MAX, max(ahead, idle))
