"""How long what may be repeated is repeated, with what pauses, and how certain its failure is.

The one rule: only failures that time may cure are borne: nobody there, an answer lost, no leader, a
quota, the error of a proxy; and what may have been carried out once is told as AnswerLost. Pauses
double from 50 ms to 2 s and are shortened at random, so that clients that failed together do not
come back together; a `Retry-After` counts as the least.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, TypeVar

from delaylog.client.errors import (
    AnswerLost,
    ApiError,
    ClientError,
    DiskFull,
    NotReached,
    NotReady,
    QuotaExceeded,
)

E = TypeVar("E", bound=BaseException)
FIRST_PAUSE_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0
CERTAIN: Final = (QuotaExceeded, DiskFull)
"""A broker looks for a repeat before it says these, so no earlier try was carried out either."""


def of_a_proxy(error: BaseException) -> bool:
    """Whether something between said it: what the broker did nobody knows."""
    return isinstance(error, ApiError) and error.status >= 500 and error.code == "unknown_error"


def told(error: E, *, doubt: bool) -> E | AnswerLost:
    """The failure of the last try, never more certain than it is; `doubt`: an earlier one may have
    been carried out.
    """
    if not doubt or isinstance(error, AnswerLost):
        return error
    lost = AnswerLost(f"an earlier try had no answer, and then: {error}")
    lost.__cause__ = error
    return lost


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
            raise told(error, doubt=self._doubt)
        pause_s = self._next_s * (1 - self._random.random() / 2)
        self._next_s = min(self._next_s * 2, PAUSE_MAX_S)
        asked_s = getattr(error, "retry_after_s", None)
        # A cluster has another leader long before the second that its nodes ask for.
        if asked_s is not None and isinstance(error, QuotaExceeded):
            pause_s = max(pause_s, asked_s)
        if self._clock() + pause_s > self._until_s:
            raise told(error, doubt=self._doubt)
        return pause_s
