"""The messages that the running code handles: those of its handler, or of its `with` blocks.

A send uses them to say that it changed nothing, because a message with its id is being handled.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from delaylog.client.models import Sent

if TYPE_CHECKING:
    from delaylog.client.message import LeasedMessage

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
