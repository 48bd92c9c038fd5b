"""AsyncWorker: runs consumers until a graceful stop.

`stop` always returns, unless a handler blocks the event loop. `run` handles signals and ends the
process even then.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from delaylog.client._async.concurrency import Cancelled, Event, from_any_thread, together
from delaylog.client._async.message import AsyncMessage
from delaylog.client._async.workers.beginnings import AsyncBeginnings
from delaylog.client._async.workers.calls import SharedGate
from delaylog.client._async.workers.shift import STOP_S, AsyncShift, OnError, check_handler
from delaylog.client.errors import ClientClosed
from delaylog.client.hooks import NO_HOOKS, Hooks
from delaylog.client.wire.checks import check_keywords, check_topic
from delaylog.client.wire.times import duration_s
from delaylog.client.workers.consumer import (
    Consumer,
    ConsumerOptions,
    Declaring,
    NothingToRun,
    check_not_importing,
)
from delaylog.client.workers.signals import Signals

if TYPE_CHECKING:
    from delaylog.client._async.workers.ports import AsyncPort


Handler = TypeVar(
    "Handler",
    bound=Callable[[AsyncMessage], Awaitable[Any]] | Callable[[list[AsyncMessage]], Awaitable[Any]],
)


class AsyncWorker(Declaring):
    """Runs consumers. `ports` returns the shards of a consumer. AsyncClient is a worker."""

    def __init__(
        self, ports: Callable[[Consumer], Sequence[AsyncPort]], *, hooks: Hooks | None = None
    ) -> None:
        self._ports = ports
        self._hooks = hooks or NO_HOOKS
        self._consumers: list[Consumer] = []
        self._shifts: list[tuple[Consumer, AsyncShift]] = []
        self._beginnings = AsyncBeginnings()
        self._end = Event()
        self._starting = False
        self._process_id = os.getpid()

    def consumer(
        self,
        topic: str,
        *,
        on_error: OnError | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Callable[[Handler], Handler]:
        """Register the decorated function, and return it, as the handler of a topic's messages.

        A message is acked when the handler returns. When the handler raises, the message is
        redelivered after `backoff` (None: the topic's), or as `Retry` says; after `max_retry`
        retries it is dead. `Reject` makes it dead at once. A message that the handler settled by
        its own methods is left alone.

        `concurrency`: how many handlers run at the same time. Messages with the same key are
        handled one at a time, even if a lease is lost.
        `batch`: the handler takes a list of up to `batch_max` (100) messages, which are acked or
        redelivered together. None: true if `batch_max` is given or the parameter of the handler is
        annotated as a list.
        `prefetch`: the maximum number of messages that wait in the process. The worker fetches a
        quarter of a second of work, so that no message waits behind slow handlers. 0: it fetches
        only messages that a handler can take immediately.
        `lease`: the lease of a message. It is extended at half-time while the message waits or
        is handled. Messages of a killed process are redelivered after this time.
        `wait`: how long a receive waits at the broker. `group`, `tags`, `tags_mode` select the
        messages. The broker's check of tags is approximate; `exact_tags` adds an exact check in the
        worker.
        `grace`: how long `stop` waits for handlers before it returns their messages.
        `time_limit`: how long a handler may run (None: without limit). Then its message counts as
        failed, and TimeLimitExceeded is logged. A coroutine is cancelled. A thread cannot be
        stopped: it runs on, its result is ignored, and it occupies one place of `concurrency`.
        `consumer_name`: stored with each attempt (None: host name and process id).
        `on_error(message, error)`: called when a handler raises anything but Retry and Reject.
        It may return the timedelta until redelivery, or None for the backoff.
        """

        self._check_open()
        # This also catches `@client.consumer` without parentheses.
        check_topic(topic)
        check_keywords("consumer", options, ConsumerOptions)

        def declare(function: Handler) -> Handler:
            self._declare(Consumer(topic=topic, handler=function, on_error=on_error, **options))
            return function

        return declare

    def _check_open(self) -> None:
        """Do nothing: a worker by itself is never closed."""

    def _declare(self, consumer: Consumer) -> None:
        check_handler(f"the handler of {consumer.name}", consumer.handler)
        if self._running():
            raise RuntimeError("declare consumers before the worker is started")
        self._consumers.append(consumer)

    def connected(self) -> bool:
        """Whether the worker runs, and a broker answered the last receive of each consumer."""
        return self._running() and all(shift.connected for _, shift in self._shifts)

    def _running(self) -> bool:
        """Whether the worker runs here. The messages of one that a parent runs are the parent's."""
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self._shifts = []
        return bool(self._shifts)

    async def start(self) -> None:
        """Start to handle messages, for programs that handle signals themselves; see `stop`.

        RuntimeError if no handler was declared, or if the worker is already running, ClientClosed
        if the client is closed. If tasks have schedules, the refusals of `put_schedule`.
        """
        self._prepare()
        await self._start()

    def _prepare(self) -> None:
        """Check that the worker can start."""
        check_not_importing()
        self._check_open()
        if not self._consumers:
            raise NothingToRun("there is nothing to run: declare a handler with @….consumer(topic)")
        if self._running() or self._starting:
            raise RuntimeError("the worker is running already")
        # A new event for each run: the client may outlive the event loop of the first one.
        self._end = Event()

    async def _start(self) -> None:
        self._starting = True
        try:
            await self._beginnings.begin(self._end)
        finally:
            self._starting = False
        try:
            # It may have been closed meanwhile, and nobody would stop the shifts.
            self._check_open()
        except ClientClosed:
            await self._beginnings.stop()
            raise
        gates: dict[tuple[str, str | None], SharedGate] = {}
        for consumer in self._consumers:
            shift = AsyncShift(
                consumer,
                self._ports(consumer),
                gate=gates.setdefault((consumer.topic, consumer.group), SharedGate()),
                hooks=self._hooks,
                end=self._end,
            )
            self._shifts.append((consumer, shift))
        for _, shift in self._shifts:
            shift.start()

    async def stop(self, *, grace: timedelta | None = None) -> None:
        """Stop fetching, return waiting messages, and wait up to `grace` for handlers.

        None uses the value of each consumer. Afterwards the remaining handlers are
        abandoned: tasks are cancelled, the results of threads are ignored, and their messages are
        returned. Raises the SystemExit or KeyboardInterrupt of a handler, or the error with which a
        broker refused a consumer, from the start or for its token. Does nothing if the worker is
        not running. `close` calls it too. A `run` in progress then returns.
        """
        grace_s = duration_s("grace", grace, or_zero=True)
        if not self._running():
            return
        shifts, self._shifts = self._shifts, []
        end = self._end
        try:
            await self._beginnings.stop()
            await together(
                partial(shift.stop, consumer.grace_s if grace_s is None else grace_s)
                for consumer, shift in shifts
            )
        except Cancelled:
            # Or the leases would be extended for ever, and nobody could stop that.
            for _, shift in shifts:
                shift.cut()
            raise
        finally:
            end.set()
        for _, shift in shifts:
            if shift.ended_by is not None:
                raise shift.ended_by
        for consumer, shift in shifts:
            if (refused := shift.startup.error) is not None:
                if not isinstance(refused, ClientClosed):
                    refused.add_note(f"the consumer of {consumer.name} was refused")
                raise refused
        if self._beginnings.error is not None:
            raise self._beginnings.error

    async def run(self) -> None:
        """Handle messages until SIGTERM or SIGINT, then `stop`. A second signal kills the process.

        Raises Unauthorized or Forbidden if a consumer is refused for its token, and NotFound (no
        such group) or another refusal if it is refused from the start. After the first answer,
        other refusals are retried. ClientClosed if the client is closed. RuntimeError outside the
        main thread. A handler that blocks the event loop cannot be stopped: then the process exits
        a few seconds after the grace period.
        """
        self._prepare()
        with Signals(from_any_thread(self._ask_to_end), limit_s=self._stop_limit_s()):
            await self._start()
            try:
                await self._end.wait()
            finally:
                await self.stop()

    def _stop_limit_s(self) -> float:
        """How long a stop takes at most, unless a handler blocks it."""
        return max((each.grace_s for each in self._consumers), default=0.0) + STOP_S

    def _ask_to_end(self) -> None:
        self._end.set()
