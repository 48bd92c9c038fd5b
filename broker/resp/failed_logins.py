"""Slows down guesses of passwords from one address.

Tokens are not slowed down: nobody guesses 32 random bytes. Otherwise a stranger, or clients with an
old token, could keep all clients behind the same proxy or on the same machine from logging in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from delaylog.broker.engine.access.token_form import is_token
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.resp.facts import host_in

AUTH_WAIT_SECONDS: Final = 0.5
"""After a wrong password, the next one from that address is checked only after this time."""
_ADDRESSES_MAX: Final = 1_024

log = logging.getLogger("delaylog.resp")


class FailedLogins:
    """Recent wrong secrets by address."""

    def __init__(self, time: Callable[[], float]) -> None:
        """`time` = the loop's clock."""
        self._time = time
        self._failed: dict[str, tuple[int, float]] = {}
        """Address -> number of failures, and the time of the next attempt."""

    def note(self, session: Session, secret: bytes) -> None:
        """Count a wrong secret. The first one and every doubling are logged."""
        host = host_in(session.address)
        count, next_s = self._failed.pop(host, (0, 0.0))
        count += 1
        if len(self._failed) >= _ADDRESSES_MAX:
            del self._failed[next(iter(self._failed))]
        if not _is_token(secret):
            next_s = self._time() + AUTH_WAIT_SECONDS
        self._failed[host] = count, next_s
        if count & (count - 1) == 0:
            log.warning(
                "a Redis client sent a wrong token or password",
                extra={"address": host, "failures": count},
            )

    def left(self, session: Session, words: Iterable[bytes]) -> float:
        """Return the seconds until the address of a client may try again.

        `words` = the client's command. 0 if one of its words has the form of a token.
        """
        failed = self._failed.get(host_in(session.address))
        if failed is None or any(map(_is_token, words)):
            return 0.0
        return failed[1] - self._time()


def _is_token(secret: bytes) -> bool:
    return is_token(secret.decode("latin-1"))
