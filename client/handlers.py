"""What a handler, or a `with message:` block, raises, and which message it handles.

Neither Retry nor Reject is logged as a failure. Both end the block or handler in which they are
raised. A send looks at the handled messages to say that it changed nothing, because a message with
its id is being handled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from delaylog.client.models import Sent
from delaylog.client.wire.times import delay_of
from delaylog.contract.calls.shapes import REASON_BYTES_MAX

if TYPE_CHECKING:
    from delaylog.client.message import LeasedMessage


# -------------------------------------------------------- exceptions by which a handler decides


class Retry(Exception):
    """Raise it to have the message delivered again after `delay`; 0: at once.

    Without a delay the consumer's or the topic's backoff applies, as after any other exception.
    Every delivery counts as an attempt: a message that has used up its `max_retry` becomes a dead
    letter instead.
    """

    def __init__(self, *, delay: timedelta | None = None) -> None:
        self.delay_ms = delay_of(delay)
        how = "as the backoff says" if self.delay_ms is None else f"in {self.delay_ms} ms"
        super().__init__(how)

    def __reduce__(self) -> tuple[Callable[[int | None], Retry], tuple[int | None]]:
        # Handlers may run in a pool of processes, whose exceptions come back pickled.
        return _retry_after, (self.delay_ms,)


def _retry_after(delay_ms: int | None) -> Retry:
    return Retry(delay=None if delay_ms is None else timedelta(milliseconds=delay_ms))


class Reject(Exception):
    """Raise it to make the message a dead letter now, because no retry can succeed.

    The reason is logged and stored with the attempt; the dead letter has the cause `rejected`.
    """

    def __init__(self, reason: object = "") -> None:
        """`reason` may be an exception too; its text is kept."""
        self.reason = "" if reason is None else _text_of(reason)
        super().__init__(*([self.reason] if self.reason else []))


def reason_of(error: BaseException) -> str | None:
    """What is stored with an attempt that ended by this exception, in up to 1,024 bytes.

    It never raises: otherwise the message would never be settled.
    """
    if isinstance(error, Retry):
        return None
    if isinstance(error, Reject):
        # A class of the program may set anything as the reason, or nothing.
        said = _text_of(getattr(error, "reason", ""))
    else:
        said = f"{type(error).__name__}: {_text_of(error)}"
    return said.encode(errors="replace")[:REASON_BYTES_MAX].decode(errors="ignore") or None


def _text_of(given: object) -> str:
    """The text of an object; the name of its class if its `__str__` raises."""
    try:
        return str(given)
    except Exception:
        return type(given).__name__


class TimeLimitExceeded(TimeoutError):
    """A handler ran longer than the time limit of its consumer."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        super().__init__(f"the handler ran longer than its time limit of {limit_s:g} s")

    def __reduce__(self) -> tuple[type[TimeLimitExceeded], tuple[float]]:
        return TimeLimitExceeded, (self.limit_s,)


# --------------------------------------------------- the messages that the running code handles

log = logging.getLogger("delaylog.client")
HANDLED: Final[ContextVar[tuple[LeasedMessage, ...]]] = ContextVar("delaylog_handled", default=())


def current_message() -> LeasedMessage:
    """The message that the calling task, handler or `with` block handles; the innermost one.

    Of a handler of batches the last one. LookupError outside of them.
    """
    handled = HANDLED.get()
    if not handled:
        raise LookupError("no message is being handled here")
    return handled[-1]


def enter(message: LeasedMessage) -> None:
    """Add the message of a `with` block."""
    HANDLED.set((*HANDLED.get(), message))


def leave(message: LeasedMessage) -> None:
    """Remove the message of a `with` block."""
    HANDLED.set(tuple(each for each in HANDLED.get() if each is not message))


def noted(topic: str, sent: Sent) -> Sent:
    """The result of a send, after a WARNING if it was lost on a message that is being handled."""
    if sent.result == "kept":
        for message in HANDLED.get():
            if message.topic == topic and message.id == sent.id:
                log.warning(
                    "%s: a send with the id %r, which is being handled, changed nothing, because "
                    "the existing message is kept: to have it delivered again, send it with "
                    "merge='replace', or send another id",
                    topic,
                    sent.id,
                )
    return sent
