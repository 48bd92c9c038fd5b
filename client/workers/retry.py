"""Retry: how a handler says that a message is to come again later, and when.

The one rule: it is no failure, but it is an attempt; past the message's `max_retry` it is dead.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

_MS: Final = timedelta(milliseconds=1)


class Retry(Exception):
    """Raise it in a handler: the message comes again after `delay_ms`, or `delay`.

    Without either it waits as after any other exception (the consumer's backoff, else the
    topic's). 0 is at once. Each delivery counts, whatever ended it, so a message that has used up
    its `max_retry` goes to the dead letters instead. The API has no call that sends a message
    there before that: who knows at the first attempt that it will never do acks it, and keeps what
    is worth keeping elsewhere, or sends it with a `max_retry` of its own (0 = one attempt).
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
