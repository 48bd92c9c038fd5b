"""What a failed call means to a worker, the same for tasks and threads.

The one rule: who was answered once is not ended by anything a broker does: it is told of when it
begins, every minute that it lasts, and when it is over, and waited out. Only a consumer that a
shard refuses from the start ends its worker: its declaration or that broker has to be put right
first. A topic or group that is not there counts when all shards lack it.
"""

from __future__ import annotations

import logging
from typing import Final

from delaylog.client.errors import ApiError, NotFound
from delaylog.client.workers.backoff import Backoff

logger = logging.getLogger(__name__)

# A Retry-After beyond this is not believed.
RETRY_AFTER_S_MAX: Final = 10.0
# What lasts is said again, so that the log of today tells of a trouble that began last week.
SAY_AGAIN_S: Final = 60.0


class Outages:
    """One shard's: says in the log when calls begin to fail and when they are answered again."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._failures = 0
        self._said = ""
        self._say_again_at_s = 0.0

    def failed(self, error: Exception, now_s: float) -> int:
        """Another call failed; how many in a row."""
        self._failures += 1
        kind = error.code if isinstance(error, ApiError) else type(error).__name__
        if kind != self._said or now_s >= self._say_again_at_s:
            self._said = kind
            self._say_again_at_s = now_s + SAY_AGAIN_S
            # A broker that is away comes back by itself; one that says no waits for somebody.
            level = logging.ERROR if is_refusal(error) else logging.WARNING
            tries = f", try {self._failures}" if self._failures > 1 else ""
            logger.log(level, "%s%s: %s", self._what, tries, error or kind)
        return self._failures

    def over(self) -> None:
        """A call was answered."""
        if self._failures:
            logger.info("%s: it is over, after %d calls", self._what, self._failures)
            self._failures, self._said = 0, ""


class Beginning:
    """Whether one consumer gets to work at all, over its shards, which are named by number.

    A refusal counts until its shard answers a receive; one of a shard that has answered before is
    an outage. One shard that lacks the topic or group ends nothing while others may have it.
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._answered: set[int] = set()
        self._refusals: dict[int, Exception] = {}

    def answered(self, shard: int) -> None:
        """A receive came through."""
        if shard not in self._answered:
            self._answered.add(shard)
            self._refusals.pop(shard, None)

    def refused(self, shard: int, error: Exception) -> bool:
        """A receive failed; whether the consumer can do nothing, for the reason in `error`."""
        if shard not in self._answered and is_refusal(error):
            self._refusals[shard] = error
        return self.error is not None

    @property
    def error(self) -> Exception | None:
        """Why it never began; None while it may, and once it did."""
        for error in self._refusals.values():
            if not isinstance(error, NotFound):
                return error
        if len(self._refusals) < self._shards:
            return None
        return next(iter(self._refusals.values()))


def is_refusal(error: Exception) -> bool:
    """Whether the broker said no for good, or we cannot even ask."""
    if isinstance(error, ApiError):
        return error.status < 500 and error.status not in (307, 408, 429)
    return isinstance(error, (ValueError, TypeError, AssertionError))


def wait_after(backoff: Backoff, failures: int, chance: float, error: Exception) -> float:
    """Seconds until the next try."""
    wait_s = backoff.delay_ms(failures, chance) / 1000
    after_s = error.retry_after_s if isinstance(error, ApiError) else None
    return max(wait_s, min(after_s or 0.0, RETRY_AFTER_S_MAX))
