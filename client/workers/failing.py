"""What a failed call means to a worker, the same for tasks and threads.

The one rule: nothing a broker does ends a worker; it is told of once when it begins, once when it
is over, and waited out.
"""

from __future__ import annotations

import logging
from typing import Final

from delaylog.client.errors import ApiError
from delaylog.client.workers.backoff import Backoff

logger = logging.getLogger(__name__)

# A Retry-After beyond this is not believed.
RETRY_AFTER_S_MAX: Final = 10.0


class Outages:
    """One shard's: says in the log when calls begin to fail and when they are answered again."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._failures = 0
        self._said = ""

    def failed(self, error: Exception) -> int:
        """Another call failed; how many in a row."""
        self._failures += 1
        kind = error.code if isinstance(error, ApiError) else type(error).__name__
        if kind != self._said:
            self._said = kind
            logger.warning("%s: %s", self._what, error or kind)
        return self._failures

    def over(self) -> None:
        """A call was answered."""
        if self._failures:
            logger.info("%s: it is over, after %d calls", self._what, self._failures)
            self._failures, self._said = 0, ""


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
