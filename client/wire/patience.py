"""How long repeatable calls are retried, with which pauses, and which error they end with.

Only transient failures are retried: broker unreachable, answer lost, no leader, quota, proxy error.
If any try may have been carried out, the final error is AnswerLost. Pauses double from 50 ms to
2 s, with jitter against a thundering herd; a `Retry-After` is the minimum.
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
    Held,
    NotReached,
    NotReady,
    QuotaExceeded,
)

E = TypeVar("E", bound=BaseException)
FIRST_PAUSE_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0
CERTAIN: Final = (QuotaExceeded, DiskFull)
"""A broker detects repeats before it raises these, so no earlier try was carried out."""


def is_proxy_error(error: BaseException) -> bool:
    """Whether a proxy raised the error, so that the outcome at the broker is unknown."""
    return isinstance(error, ApiError) and error.status >= 500 and error.code == "unknown_error"


def is_doubtful(error: BaseException) -> bool:
    """Whether the call that raised the error may have been carried out."""
    if isinstance(error, Held):
        return False
    # A request that was answered with `not_ready` may have been accepted, see HTTP.md.
    return isinstance(error, AnswerLost | NotReady) or is_proxy_error(error)


def final_error(error: E, *, doubt: bool) -> E | AnswerLost:
    """The error to raise after the last try.

    It is AnswerLost if an earlier try may have been carried out (`doubt`).
    """
    if not doubt or isinstance(error, AnswerLost):
        return error
    lost = AnswerLost(f"an earlier try had no answer, and then: {error}")
    lost.__cause__ = error
    return lost


class Patience:
    """The retries of one call, for `for_s` seconds of a monotonic clock."""

    def __init__(self, for_s: float, clock: Callable[[], float], random: Random) -> None:
        self._clock = clock
        self._random = random
        self._until_s = clock() + for_s
        self._next_s = FIRST_PAUSE_S
        self._doubt = False
        """Whether any try may have been carried out."""

    def pause_s(self, error: ClientError) -> float:
        """How long to wait before the next try. Raises the final error if there is none."""
        doubtful = is_doubtful(error)
        self._doubt = doubtful or (self._doubt and not isinstance(error, CERTAIN))
        if not doubtful and not isinstance(error, NotReached | QuotaExceeded):
            raise final_error(error, doubt=self._doubt)
        pause_s = self._next_s * (1 - self._random.random() / 2)
        self._next_s = min(self._next_s * 2, PAUSE_MAX_S)
        asked_s = getattr(error, "retry_after_s", None)
        # A cluster elects a leader much faster than the second that its nodes ask for.
        if asked_s is not None and isinstance(error, QuotaExceeded):
            pause_s = max(pause_s, asked_s)
        if self._clock() + pause_s > self._until_s:
            raise final_error(error, doubt=self._doubt)
        return pause_s
