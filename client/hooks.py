"""Hooks: what a program may hear of its client and its workers, for metrics and tracing.

Subclass `Hooks`, override what is wanted, and pass it as `hooks=` to a client. The one rule: a
hook never changes what happens to a message; one that raises is logged and passed over. Hooks are
called on the thread or in the loop that does the work, so they have to be quick, and with a
`Client` they may be called by several threads at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delaylog.client.message import Message

logger = logging.getLogger(__name__)


class Hooks:
    """Does nothing at every turn. Seconds are those of the caller's clock, `n` counts messages."""

    def on_sent(self, topic: str, n: int, seconds: float) -> None:
        """A batch of sends was answered, `seconds` after its first row was handed over."""

    def on_send_retry(self, topic: str, n: int, error: Exception) -> None:
        """A batch of sends failed for now, and is repeated; in a cluster also by another node."""

    def on_send_failed(self, topic: str, n: int, error: Exception) -> None:
        """Sends failed for good; their callers get the error."""

    def on_received(self, topic: str, n: int) -> None:
        """A worker was handed messages."""

    def on_handled(self, message: Message, seconds: float) -> None:
        """A handler returned. Of a batch: called for each message, with the time of the whole."""

    def on_handler_error(self, message: Message, error: BaseException, seconds: float) -> None:
        """A handler raised, a `Retry` included; the message comes again, or is dead."""

    def on_lease_lost(self, message: Message) -> None:
        """The lease ended while a handler ran, or before its ack came: it will be handled again."""

    def on_settled(self, topic: str, verb: str, n: int, seconds: float) -> None:
        """The broker answered an `ack`, `nack`, `give_back` or `extend` of `n` messages."""

    def outgoing_headers(self, topic: str) -> Mapping[str, str] | None:  # noqa: ARG002
        """Headers to add to each message that is sent, such as a traceparent; its own win."""
        return None

    def handling(self, message: Message) -> AbstractContextManager[Any]:  # noqa: ARG002
        """Entered around each handler, and told what it raised; for a batch, one of each message.

        What its `__exit__` returns changes nothing.
        """
        return nullcontext()


NO_HOOKS: Final = Hooks()


def overridden(hooks: Hooks, name: str) -> Callable[..., Any] | None:
    """A hook's method that never raises, or None where nobody listens, so nothing is called."""
    method: Callable[..., Any] = getattr(hooks, name)
    if getattr(method, "__func__", None) is getattr(Hooks, name):
        return None

    def guarded(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Exception:
            logger.exception("hook %s failed", name)
            return None

    return guarded


class Around:
    """The context managers that `handling` gave for some messages, entered and left safely."""

    def __init__(self, hooks: Hooks, messages: list[Message]) -> None:
        self._entered: list[AbstractContextManager[Any]] = []
        for message in messages:
            try:
                manager = hooks.handling(message)
                manager.__enter__()
            except Exception:
                logger.exception("hook handling failed")
            else:
                self._entered.append(manager)

    def leave(self, error: BaseException | None) -> None:
        """Leave them, latest first; `error` is what the handler raised."""
        kind: type[BaseException] | None = None if error is None else type(error)
        trace: TracebackType | None = None if error is None else error.__traceback__
        while self._entered:
            try:
                self._entered.pop().__exit__(kind, error, trace)
            except Exception as raised:
                # A manager made of a generator raises what it was told once more.
                if raised is not error:
                    logger.exception("hook handling failed")


def check_hooks(hooks: object) -> None:
    """TypeError for what hears nothing, such as a class that was meant to be called."""
    if hooks is not None and not isinstance(hooks, Hooks):
        raise TypeError(f"hooks are an object of a class below Hooks, not {hooks!r}")
