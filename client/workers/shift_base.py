"""ShiftBase: the parts that shifts with tasks and with threads share. It never waits or locks.

It reports the errors of handlers to hooks and the log, and ends the worker only for SystemExit and
KeyboardInterrupt.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from delaylog.client.hooks import Hooks, overridden
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.desk import Desk
from delaylog.client.workers.failing import Startup
from delaylog.client.workers.held import Held
from delaylog.client.workers.key_gate import KeyGate
from delaylog.client.workers.retry import Retry

if TYPE_CHECKING:
    from delaylog.client.message import Message

logger = logging.getLogger(__name__)


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
        self._consumer = consumer
        self._desk = Desk(consumer, ports=ports, gate=gate, hooks=hooks, chance=random.random)
        self._hooks = hooks
        self._around = overridden(hooks, "handling") is not None
        self._on_handled = overridden(hooks, "on_handled")
        self._on_handler_error = overridden(hooks, "on_handler_error")
        self._on_settled = overridden(hooks, "on_settled")

    def _report_handled(self, messages: Sequence[Message], seconds: float) -> None:
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
        logger.warning("%s: a handler failed: %r", self._consumer.name, error, exc_info=error)
        return True

    def _end_if_requested(self, error: BaseException) -> None:
        """End the worker if the error is a SystemExit or KeyboardInterrupt."""
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            self.ended_by = error
            self._end.set()

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
