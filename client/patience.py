"""How long what may be repeated is repeated, with what pauses, and how certain its failure is.

The one rule: only failures that time may cure are borne: nobody there, an answer lost, no leader, a
quota, the error of a proxy; and what may have been carried out once is told as AnswerLost. Pauses
double from 50 ms to 2 s and are shortened at random, so that clients that failed together do not
come back together; a `Retry-After` counts as the least.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from delaylog.client.errors import (
    AnswerLost,
    ApiError,
    ClientError,
    DiskFull,
    NotReached,
    NotReady,
    QuotaExceeded,
)

FIRST_PAUSE_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0
CERTAIN: Final = (QuotaExceeded, DiskFull)
"""A broker looks for a repeat before it says these, so no earlier try was carried out either."""


def of_a_proxy(error: BaseException) -> bool:
    """Whether something between said it: what the broker did nobody knows."""
    return isinstance(error, ApiError) and error.status >= 500 and error.code == "unknown_error"


class Patience:
    """One call that is tried for `for_s` seconds by a clock that only goes forward."""

    def __init__(self, for_s: float, clock: Callable[[], float], random: Random) -> None:
        self._clock = clock
        self._random = random
        self._until_s = clock() + for_s
        self._next_s = FIRST_PAUSE_S
        self._doubt = False
        """Whether a try may have been carried out."""

    def pause_s(self, error: ClientError) -> float:
        """How long to wait before the next try; raises what it came to when there is to be none."""
        doubtful = isinstance(error, AnswerLost | NotReady) or of_a_proxy(error)
        self._doubt = doubtful or (self._doubt and not isinstance(error, CERTAIN))
        if not doubtful and not isinstance(error, NotReached | QuotaExceeded):
            raise self._told(error)
        pause_s = self._next_s * (1 - self._random.random() / 2)
        self._next_s = min(self._next_s * 2, PAUSE_MAX_S)
        asked_s = getattr(error, "retry_after_s", None)
        # A cluster has another leader long before the second that its nodes ask for.
        if asked_s is not None and isinstance(error, QuotaExceeded):
            pause_s = max(pause_s, asked_s)
        if self._clock() + pause_s > self._until_s:
            raise self._told(error)
        return pause_s

    def _told(self, error: ClientError) -> ClientError:
        """Never more certain than it is."""
        if not self._doubt or isinstance(error, AnswerLost):
            return error
        told = AnswerLost(f"a try had no answer of the broker's, and the last one: {error}")
        told.__cause__ = error
        return told
