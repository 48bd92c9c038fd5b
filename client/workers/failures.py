"""How a worker reacts to failed calls, shared by tasks and threads.

After its first answer from a shard, a consumer survives other failures of that shard than a missing
token or right: it retries, and logs the start of the outage, a reminder every minute, and the end.
A consumer that a shard refuses from the start ends the worker, since its declaration or the broker
must be fixed. A missing topic or group ends the worker only if all shards lack it. A missing token
or right ends it at any time, since the token was revoked or has expired, and so does a closed
client.
"""

from __future__ import annotations

import logging
from typing import Final

from delaylog.client.errors import ApiError, ClientClosed, Forbidden, NotFound, Unauthorized
from delaylog.client.workers.consumer import Backoff

logger = logging.getLogger(__name__)

# A longer Retry-After is cut to this.
RETRY_AFTER_S_MAX: Final = 10.0
# An outage is logged again at this interval, so that recent logs show an old problem.
REMIND_S: Final = 60.0


class Outages:
    """Logs the first connection of a consumer to one shard, and the shard's outages."""

    def __init__(self, consumer: str, shard: str) -> None:
        self._consumer = consumer
        self._shard = shard
        self.connected = False
        """Whether the last call was answered."""
        self._failures = 0
        self._said = ""
        self._say_again_at_s = 0.0

    def failed(self, error: Exception, now_s: float) -> int:
        """Record a failed call. Returns the number of consecutive failures."""
        self._failures += 1
        self.connected = False
        kind = error.code if isinstance(error, ApiError) else type(error).__name__
        if kind != self._said or now_s >= self._say_again_at_s:
            self._said = kind
            self._say_again_at_s = now_s + REMIND_S
            # An unreachable broker may come back by itself; a refusal needs an operator.
            level = logging.ERROR if is_refusal(error) else logging.WARNING
            tries = f", try {self._failures}" if self._failures > 1 else ""
            what = f"{self._consumer}: cannot receive from {self._shard}{tries}"
            logger.log(level, "%s: %s", what, error or kind)
        return self._failures

    def answered(self) -> None:
        """Record an answered call."""
        if self.connected:
            return
        self.connected = True
        after = f" again, after {self._failures} failed calls" if self._failures else ""
        logger.info("%s: connected to %s%s", self._consumer, self._shard, after)
        self._failures, self._said = 0, ""


class Startup:
    """Whether one consumer can start at all, and go on, given the answers of its shards.

    A refusal counts until the shard answers a receive; a refusal after an answer is an outage. A
    shard without the topic or group does not count while other shards may have it. A missing token
    or right always counts.
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._answered: set[int] = set()
        self._refusals: dict[int, Exception] = {}

    def answered(self, shard: int) -> None:
        """Record that a shard answered a receive."""
        if shard not in self._answered:
            self._answered.add(shard)
            self._refusals.pop(shard, None)

    def refused(self, shard: int, error: Exception) -> bool:
        """Record a failed receive. Returns whether the consumer cannot go on; see `error`."""
        if is_denial(error) or (shard not in self._answered and is_refusal(error)):
            self._refusals[shard] = error
        return self.error is not None

    @property
    def error(self) -> Exception | None:
        """Why the consumer cannot start or go on; None if it may."""
        for error in self._refusals.values():
            if not isinstance(error, NotFound):
                return error
        if len(self._refusals) < self._shards:
            return None
        return next(iter(self._refusals.values()))


def is_denial(error: Exception) -> bool:
    """Whether repeats never help: the token is not valid or lacks the right, or the client is
    closed.
    """
    return isinstance(error, (Unauthorized, Forbidden, ClientClosed))


def is_refusal(error: Exception) -> bool:
    """Whether the error is permanent: a refusal, or a request that cannot be built."""
    if isinstance(error, ApiError):
        return error.status < 500 and error.status not in (307, 408, 429)
    return isinstance(error, (ValueError, TypeError, AssertionError, ClientClosed))


def wait_after(backoff: Backoff, failures: int, chance: float, error: Exception) -> float:
    """Seconds until the next try."""
    wait_s = backoff.delay_ms(failures, chance) / 1000
    after_s = error.retry_after_s if isinstance(error, ApiError) else None
    return max(wait_s, min(after_s or 0.0, RETRY_AFTER_S_MAX))
