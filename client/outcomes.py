"""Exceptions by which a handler, or a `with message:` block, decides about its message.

Neither is logged as a failure. Both end the block or handler in which they are raised.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from delaylog.client.wire.durations import delay_of
from delaylog.contract.calls.shapes import REASON_BYTES_MAX


class Retry(Exception):
    """Raise it to have the message delivered again after `delay_ms` or `delay`; 0: at once.

    Without a delay the consumer's or the topic's backoff applies, as after any other exception.
    Every delivery counts as an attempt: a message that has used up its `max_retry` becomes a dead
    letter instead.
    """

    def __init__(self, *, delay_ms: int | None = None, delay: timedelta | None = None) -> None:
        self.delay_ms = delay_of(delay, delay_ms)
        how = "as the backoff says" if self.delay_ms is None else f"in {self.delay_ms} ms"
        super().__init__(how)

    def __reduce__(self) -> tuple[Callable[[int | None], Retry], tuple[int | None]]:
        # Handlers may run in a pool of processes, whose exceptions come back pickled.
        return _retry_after, (self.delay_ms,)


def _retry_after(delay_ms: int | None) -> Retry:
    return Retry(delay_ms=delay_ms)


class Reject(Exception):
    """Raise it to make the message a dead letter now, because no retry can succeed.

    The reason is logged and stored with the attempt; the dead letter has the cause `rejected`.
    """

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(*([reason] if reason else []))


def reason_of(error: BaseException) -> str | None:
    """What is stored with an attempt that ended by this exception, in up to 1,024 bytes."""
    if isinstance(error, Retry):
        return None
    said = error.reason if isinstance(error, Reject) else f"{type(error).__name__}: {error}"
    return said.encode(errors="replace")[:REASON_BYTES_MAX].decode(errors="ignore") or None


class TimeLimitExceeded(TimeoutError):
    """A handler ran longer than the time limit of its consumer."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        super().__init__(f"the handler ran longer than its time limit of {limit_s:g} s")

    def __reduce__(self) -> tuple[type[TimeLimitExceeded], tuple[float]]:
        return TimeLimitExceeded, (self.limit_s,)
