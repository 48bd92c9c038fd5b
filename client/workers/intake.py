"""How many messages a consumer fetches: enough to stay busy, but not more than it handles soon.

Messages that wait in this process are not available to other processes. So the window is the amount
that the handlers process in a quarter of a second, by their recent speed: thousands if a handler
takes microseconds, none if it takes seconds. In the latter case only as many messages are fetched
as can start immediately. At most `prefetch` messages wait.
"""

from __future__ import annotations

from typing import Final

AHEAD_S: Final = 0.25
# Attempts begin this long before their handlers start, so that handlers do not wait for the call.
# If the process crashes, these attempts count although no handler has started.
BEGIN_AHEAD_S: Final = 0.02
# Or this many times the duration of a call, if that is longer.
CALLS_AHEAD: Final = 2
# Weight of the newest call in the average time of a call.
CALL_WEIGHT: Final = 0.25
# Half-life of the average handler time, in messages.
HALF_LIFE: Final = 100
# The broker's limit for one receive.
RECEIVE_MAX: Final = 10_000


class Intake:
    """The windows of one consumer's shards.

    `concurrency` is the number of handlers, `places` the number of messages that they can handle at
    once (a handler of batches takes several), `ports` the number of shards.
    """

    def __init__(self, *, concurrency: int, places: int, prefetch: int, ports: int) -> None:
        self._concurrency = concurrency
        self._places = places
        self._prefetch = prefetch
        self._ports = ports
        self._count = 0
        self._seconds = 0.0
        self._mean_s: float | None = None
        self._call_s = 0.0

    @property
    def mean_s(self) -> float:
        """How long a handler takes per message; 0 while that is unknown."""
        return self._mean_s or 0.0

    def handled(self, count: int, seconds: float) -> None:
        """Record that a handler took `seconds` for `count` messages."""
        self._count += count
        self._seconds += seconds

    def begun(self, seconds: float) -> None:
        """Record that a call that begins attempts took `seconds`."""
        self._call_s += (seconds - self._call_s) * CALL_WEIGHT

    def window(self) -> int:
        """How many messages may wait, over all shards. Updates `mean_s`."""
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
        """How many messages to fetch from one shard; 0: none until handlers start some.

        `waiting_here` of the `waiting` messages came from that shard.
        """
        share = -(-self.window() // self._ports)
        # Refill a window only once half of it is used, so that answers stay large.
        ahead = share - waiting_here if 2 * waiting_here <= share else 0
        return min(RECEIVE_MAX, max(ahead, self.idle(waiting=waiting, running=running)))

    def idle(self, *, waiting: int, running: int) -> int:
        """One shard's part of the handlers that have nothing to do."""
        return -(-max(0, self._places - running - waiting) // self._ports)

    def soon(self, *, running: int) -> int:
        """How many messages may wait for handlers after their attempts have begun."""
        idle = max(0, self._places - running)
        if self._mean_s is None:
            return idle
        ahead_s = min(AHEAD_S, max(BEGIN_AHEAD_S, CALLS_AHEAD * self._call_s))
        if self._mean_s * RECEIVE_MAX <= ahead_s * self._concurrency:
            return max(idle, RECEIVE_MAX)
        return max(idle, int(ahead_s * self._concurrency / self._mean_s))
