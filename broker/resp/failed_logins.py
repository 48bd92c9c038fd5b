"""Slows down guesses of secrets, per address."""

from __future__ import annotations

import logging
from typing import Final

AUTH_WAIT_SECONDS: Final = 0.5
"""After a wrong secret, the next one from that address is checked only after this time."""
_ADDRESSES_MAX: Final = 1_024

log = logging.getLogger("delaylog.resp")


class FailedLogins:
    """Recent wrong secrets by address."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[int, float]] = {}
        """Address -> number of failures, and the time of the next attempt."""

    def note(self, host: str, now: float) -> None:
        """Count a wrong secret. The first one and every doubling are logged."""
        count = self._failed.pop(host, (0, 0.0))[0] + 1
        if len(self._failed) >= _ADDRESSES_MAX:
            del self._failed[next(iter(self._failed))]
        self._failed[host] = count, now + AUTH_WAIT_SECONDS
        if count & (count - 1) == 0:
            log.warning(
                "a Redis client sent a wrong token or password",
                extra={"address": host, "failures": count},
            )

    def left(self, host: str, now: float) -> float:
        """Return the seconds until the next attempt of this address."""
        failed = self._failed.get(host)
        return 0.0 if failed is None else failed[1] - now
