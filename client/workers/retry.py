"""Retry: the exception with which a handler requests redelivery after a delay.

It is not logged as a failure, but the attempt counts towards the message's `max_retry`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

_MS: Final = timedelta(milliseconds=1)


class Retry(Exception):
    """Raise it in a handler to have the message redelivered after `delay_ms` or `delay`.

    0 means immediately. Without a delay the consumer's or the topic's backoff applies, as after any
    other exception. Every delivery counts as an attempt, so a message that has used up its
    `max_retry` becomes a dead letter instead. No call makes a message a dead letter earlier. If a
    handler knows that a message can never succeed, it should ack the message and store it
    elsewhere; or the sender sets `max_retry` (0 = one attempt).
    """

    def __init__(self, *, delay_ms: int | None = None, delay: timedelta | None = None) -> None:
        if delay_ms is not None and delay is not None:
            raise ValueError("give delay_ms or delay, not both")
        if delay is not None:
            if not isinstance(delay, timedelta):
                raise TypeError(f"delay is a timedelta, not {type(delay).__name__}")
            # Not -(-delay // _MS), which would overflow for timedelta.max.
            whole, part = divmod(delay, _MS)
            delay_ms = whole + bool(part)
        if delay_ms is not None and (isinstance(delay_ms, bool) or not isinstance(delay_ms, int)):
            raise TypeError(
                f"delay_ms is a whole number of milliseconds, not {type(delay_ms).__name__}"
            )
        if delay_ms is not None and delay_ms < 0:
            raise ValueError(f"delay_ms is not negative: {delay_ms}")
        self.delay_ms = delay_ms
        super().__init__("as the backoff says" if delay_ms is None else f"in {delay_ms} ms")

    def __reduce__(self) -> tuple[Callable[[int | None], Retry], tuple[int | None]]:
        # Handlers may run in a pool of processes, whose exceptions come back pickled.
        return _retry_after, (self.delay_ms,)


def _retry_after(delay_ms: int | None) -> Retry:
    return Retry(delay_ms=delay_ms)
