"""ShiftBase: the parts that shifts with tasks and with threads share. It never waits or locks.

It reports the errors of handlers to hooks and the log, and ends the worker only for SystemExit and
KeyboardInterrupt.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from delaylog.client.handlers import Reject, Retry, TimeLimitExceeded, reason_of
from delaylog.client.hooks import Hooks, overridden
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.desk import Desk
from delaylog.client.workers.failures import Outages, Startup
from delaylog.client.workers.leases import Held, KeyGate

if TYPE_CHECKING:
    from delaylog.client.message import LeasedMessage

logger = logging.getLogger(__name__)

# More messages of a batch are only counted in a line of the log.
NAMED_MAX: Final = 10


class End(Protocol):
    """An event of threading or asyncio."""

    def set(self) -> None:
        """Make the worker end."""


class ShiftBase:
    """The running state of one consumer."""

    def __init__(
        self, consumer: Consumer, ports: int, *, gate: KeyGate, hooks: Hooks, end: End
    ) -> None:
        """`end` is set when a handler or a refusal by a broker ends the worker."""
        self.ended_by: BaseException | None = None
        """The SystemExit or KeyboardInterrupt that a handler or `on_error` raised."""
        self.startup = Startup(ports)
        """Whether the brokers let the consumer start."""
        self._end = end
        self._outages: list[Outages] = []
        """One for each shard, once the shift has started."""
        self._consumer = consumer
        self._desk = Desk(consumer, ports=ports, gate=gate, hooks=hooks, chance=random.random)
        self._hooks = hooks
        self._around = overridden(hooks, "handling") is not None
        self._on_handled = overridden(hooks, "on_handled")
        self._on_handler_error = overridden(hooks, "on_handler_error")
        self._on_receive = overridden(hooks, "on_receive")
        self._on_settled = overridden(hooks, "on_settled")

    @property
    def connected(self) -> bool:
        """Whether the last receive from some shard was answered."""
        return any(each.connected for each in self._outages)

    def _report_started(self, shards: Sequence[str]) -> None:
        name, n = self._consumer.name, self._consumer.concurrency
        self._outages = [Outages(name, shard) for shard in shards]
        logger.info("%s: started, %d handlers at a time, on %s", name, n, ", ".join(shards))

    def _report_stopping(self, grace_s: float) -> None:
        logger.info(
            "%s: stopping; running handlers have up to %.0f s", self._consumer.name, grace_s
        )

    def _report_stopped(self) -> None:
        logger.info("%s: stopped", self._consumer.name)

    def _report_not_begun(self, error: Exception) -> None:
        logger.warning("%s: messages wait: no attempt can begin: %s", self._consumer.name, error)

    def _report_handled(self, messages: Sequence[LeasedMessage], seconds: float) -> None:
        if self._on_handled:
            for message in messages:
                self._on_handled(message, seconds)

    def _report_failed(self, batch: Sequence[Held], error: BaseException, seconds: float) -> bool:
        """Report that a handler raised. Returns whether to ask `on_error` for the delay."""
        if self._on_handler_error:
            for held in batch:
                self._on_handler_error(held.message, error, seconds)
        if isinstance(error, Retry):
            return False
        name, which = self._consumer.name, _named(batch)
        if isinstance(error, Reject):
            logger.warning(
                "%s: %s rejected: %s", name, which, reason_of(error) or "no reason given"
            )
            return False
        level = logging.ERROR if isinstance(error, TimeLimitExceeded) else logging.WARNING
        logger.log(level, "%s: %s failed: %r", name, which, error, exc_info=error)
        return True

    def _end_if_requested(self, error: BaseException) -> None:
        """End the worker if the error is a SystemExit or KeyboardInterrupt."""
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            self.ended_by = error
            self._end.set()

    def _report_receive(self, messages: Sequence[LeasedMessage], seconds: float) -> None:
        if self._on_receive and messages:
            self._on_receive(self._consumer.topic, messages, seconds)

    def _report_settled(self, verb: str, n: int, seconds: float) -> None:
        if self._on_settled:
            self._on_settled(self._consumer.topic, verb, n, seconds)

    def _report_late(self, handlers: int, grace_s: float) -> None:
        logger.warning(
            "%s: %d handlers have not ended within %.1f s; their messages are delivered again",
            self._consumer.name,
            handlers,
            grace_s,
        )


def _named(batch: Sequence[Held]) -> str:
    """The messages of a handler, each with its attempt, for a line of the log."""
    shown = [f"{each.message.id} (attempt {each.message.attempts})" for each in batch[:NAMED_MAX]]
    more = len(batch) - len(shown)
    word = "message" if len(batch) == 1 else "messages"
    return f"{word} {', '.join(shown)}{f' and {more} more' if more else ''}"
