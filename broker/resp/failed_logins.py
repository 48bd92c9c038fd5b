"""Slows down guesses of secrets from one address."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.resp.facts import host_in

AUTH_WAIT_SECONDS: Final = 0.5
"""After a wrong secret, the next one from that address is checked only after this time."""
_ADDRESSES_MAX: Final = 1_024

log = logging.getLogger("delaylog.resp")


class FailedLogins:
    """Recent wrong secrets by address."""

    def __init__(self, time: Callable[[], float]) -> None:
        """`time` = the loop's clock."""
        self._time = time
        self._failed: dict[str, tuple[int, float]] = {}
        """Address -> number of failures, and the time of the next attempt."""

    def note(self, session: Session) -> None:
        """Count a wrong secret. The first one and every doubling are logged."""
        host = host_in(session.address)
        count = self._failed.pop(host, (0, 0.0))[0] + 1
        if len(self._failed) >= _ADDRESSES_MAX:
            del self._failed[next(iter(self._failed))]
        self._failed[host] = count, self._time() + AUTH_WAIT_SECONDS
        if count & (count - 1) == 0:
            log.warning(
                "a Redis client sent a wrong token or password",
                extra={"address": host, "failures": count},
            )

    def left(self, session: Session) -> float:
        """Return the seconds until the next attempt from the address of a client."""
        failed = self._failed.get(host_in(session.address))
        return 0.0 if failed is None else failed[1] - self._time()
