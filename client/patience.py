"""How long what may be repeated is repeated, and with what pauses.

The one rule: only failures that time may cure are borne: nobody there, an answer lost, no leader, a
quota. Pauses double from 50 ms to 2 s and are shortened at random, so that clients that failed
together do not come back together; a `Retry-After` counts as the least.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from delaylog.client.errors import (
    AnswerLost,
    ClientError,
    NotReached,
    NotReady,
    QuotaExceeded,
)

FIRST_PAUSE_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0
CURABLE: Final = (NotReached, AnswerLost, NotReady, QuotaExceeded)


class Patience:
    """One call that is tried for `for_s` seconds by a clock that only goes forward."""

    def __init__(self, for_s: float, clock: Callable[[], float], random: Random) -> None:
        self._clock = clock
        self._random = random
        self._until_s = clock() + for_s
        self._next_s = FIRST_PAUSE_S

    def pause_s(self, error: ClientError) -> float:
        """How long to wait before the next try; raises the error when there is to be none."""
        if not isinstance(error, CURABLE):
            raise error
        pause_s = self._next_s * (1 - self._random.random() / 2)
        self._next_s = min(self._next_s * 2, PAUSE_MAX_S)
        asked_s = getattr(error, "retry_after_s", None)
        # A cluster has another leader long before the second that its nodes ask for.
        if asked_s is not None and isinstance(error, QuotaExceeded):
            pause_s = max(pause_s, asked_s)
        if self._clock() + pause_s > self._until_s:
            raise error
        return pause_s
