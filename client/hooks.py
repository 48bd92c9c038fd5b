"""Hooks: callbacks of a client and its workers, for metrics and tracing.

Subclass `Hooks`, override the methods you need, and pass a list of such objects as `hooks=` to a
client. A hook never changes what happens to a message: an exception that it raises is logged and
ignored. Hooks run on the thread or in the event loop that does the work, so they must be fast. With
a `Client` several threads may call them at the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delaylog.client.message import LeasedMessage

logger = logging.getLogger(__name__)


class Hooks:
    """Base class whose methods do nothing. `n` is a number of messages, `seconds` a duration."""

    def on_client(self, urls: Sequence[str]) -> None:
        """A client of the brokers at these URLs was created; of an embedded broker none is told."""

    def on_sent(self, topic: str, n: int, seconds: float) -> None:
        """A batch of sends was answered, `seconds` after its first message was queued."""

    def on_send_retry(self, topic: str, n: int, error: Exception) -> None:
        """A batch of sends failed and is retried, in a cluster possibly on another node."""

    def on_send_failed(self, topic: str, n: int, error: Exception, seconds: float) -> None:
        """Sends failed permanently, `seconds` after the first was queued; callers get the error."""

    def on_received(self, topic: str, n: int) -> None:
        """A worker received messages."""

    def on_receive(self, topic: str, messages: Sequence[LeasedMessage], seconds: float) -> None:
        """A receive of a worker was answered with messages; `seconds` include its wait for some."""

    def on_handled(self, message: LeasedMessage, seconds: float) -> None:
        """A handler returned. For a batch: called per message, with the time of the whole batch."""

    def on_handler_error(
        self, message: LeasedMessage, error: BaseException, seconds: float
    ) -> None:
        """A handler raised an exception, `Retry` included. The message is redelivered or dead."""

    def on_lease_lost(self, message: LeasedMessage) -> None:
        """The lease ended before the message was acked: it will be delivered again."""

    def on_settled(self, topic: str, verb: str, n: int, seconds: float) -> None:
        """The broker answered an `ack`, `nack`, `give_back` or `extend` of `n` messages."""

    def outgoing_headers(self, topic: str) -> Mapping[str, str] | None:  # noqa: ARG002
        """Headers to add to each sent message, such as a traceparent. Its own headers win."""
        return None

    def handling(self, message: LeasedMessage) -> AbstractContextManager[Any]:  # noqa: ARG002
        """A context manager that is entered around each handler; for a batch, one per message.

        Its `__exit__` gets the exception of the handler. Its return value is ignored.
        """
        return nullcontext()


NO_HOOKS: Final = Hooks()


def overridden(hooks: Hooks, name: str) -> Callable[..., Any] | None:
    """A method of the hooks, wrapped so that it never raises; None if it is not overridden."""
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


class Several(Hooks):
    """A list of hooks as one object: each callback calls those that override it, in order."""

    def __init__(self, members: Sequence[Hooks]) -> None:
        self.members = members
        for name in _CALLBACKS:
            calls = [call for each in members if (call := overridden(each, name)) is not None]
            if calls:
                # An attribute of the object counts as overridden, also by `overridden`.
                setattr(self, name, partial(_merged if name == "outgoing_headers" else _all, calls))


_CALLBACKS: Final = tuple(name for name in vars(Hooks) if not name.startswith("_"))


def _all(calls: Sequence[Callable[..., Any]], *arguments: Any) -> None:
    for call in calls:
        call(*arguments)


def _merged(calls: Sequence[Callable[..., Any]], topic: str) -> Mapping[str, str] | None:
    """The headers of all hooks; of two with the same name the later one."""
    headers: dict[str, str] = {}
    for call in calls:
        headers |= call(topic) or {}
    return headers or None


def headers_with(
    hooks: Hooks, topic: str, headers: Mapping[str, str] | None
) -> Mapping[str, str] | None:
    """The headers of a message plus those of the hooks. The message's own headers win."""
    try:
        more = hooks.outgoing_headers(topic)
    except Exception:
        logger.exception("hook outgoing_headers failed; the message goes without its headers")
        return headers
    return {**more, **(headers or {})} if more else headers


class Around:
    """The context managers that `handling` returned for some messages. Their errors are logged."""

    def __init__(self, hooks: Hooks, messages: list[LeasedMessage]) -> None:
        self._entered: list[AbstractContextManager[Any]] = []
        for each in hooks.members if isinstance(hooks, Several) else (hooks,):
            for message in messages:
                self._enter(each, message)

    def _enter(self, hooks: Hooks, message: LeasedMessage) -> None:
        try:
            manager = hooks.handling(message)
            manager.__enter__()
        except Exception:
            logger.exception("hook handling failed")
        else:
            self._entered.append(manager)

    def leave(self, error: BaseException | None) -> None:
        """Exit them in reverse order; `error` is the exception of the handler, or None."""
        kind: type[BaseException] | None = None if error is None else type(error)
        trace: TracebackType | None = None if error is None else error.__traceback__
        while self._entered:
            try:
                self._entered.pop().__exit__(kind, error, trace)
            except Exception as raised:
                # A context manager made from a generator raises the given exception again.
                if raised is not error:
                    logger.exception("hook handling failed")


def as_one(hooks: Sequence[Hooks]) -> Hooks | None:
    """The list as one object, None if it is empty. TypeError for anything but a list of hooks."""
    if isinstance(hooks, Hooks):
        raise TypeError(f"hooks is a list: write hooks=[{type(hooks).__name__}(…)]")
    if not isinstance(hooks, Sequence) or not all(isinstance(each, Hooks) for each in hooks):
        raise TypeError(f"hooks is a list of objects of classes below Hooks, not {hooks!r}")
    if len(hooks) > 1:
        return Several(tuple(hooks))
    return hooks[0] if hooks else None
