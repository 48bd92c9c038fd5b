"""AsyncEmbeddedBroker: the embedded broker for event loops, with the methods of `AsyncClient`.

The node has a thread of its own, as in `EmbeddedBroker`. So both work with a manual clock,
and the program's loop goes on while a call decides or waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar, Unpack

from delaylog.broker.embedded.async_broker_calls import AsyncBrokerCalls
from delaylog.broker.embedded.clocks import ManualClock
from delaylog.broker.embedded.node import Steps, in_thread
from delaylog.broker.embedded.opened import ClockT, Opened
from delaylog.broker.embedded.sendings import EmbeddedSending
from delaylog.client._async.workers.ports import async_queue_ports
from delaylog.client._async.workers.worker import AsyncWorker
from delaylog.client.errors import SendFailed
from delaylog.client.keywords import OneSendKeywords, QueuedSendKeywords, TimeLimit
from delaylog.client.models import Sent
from delaylog.client.wire.times import limit_of, split_limit

T = TypeVar("T")
PENDING_MAX: Final = 10_000
"""`room` waits while this many sends are in flight; each is a task."""


class AsyncEmbeddedBroker(AsyncBrokerCalls[ClockT]):
    """A data folder, opened by `async with delaylog.open_async(path)`; it belongs to one loop."""

    def __init__(self, opened: Opened[ClockT]) -> None:
        super().__init__(opened)
        AsyncWorker.__init__(self, async_queue_ports(self), hooks=opened.face.hooks)
        self._loop = asyncio.get_running_loop()
        self._sends: set[EmbeddedSending] = set()
        self._failures: list[BaseException] = []

    async def close(self) -> None:
        """Stop the workers, write everything to disk and release the folder.

        Raises SendFailed as `flush` does.
        """
        try:
            if not self._thread.closed:
                try:
                    await self.stop()
                except BaseException:
                    # This error is raised to the caller; sends in flight are finished first.
                    with suppress(SendFailed):
                        await self.flush()
                    raise
                await self._end_loops()
                await self.flush()
        finally:
            await in_thread(self._opened.close)

    async def advance(self, by: timedelta | None = None, **passed: float) -> int:
        """Advance a manual clock, as `ManualClock.advance` does, without blocking the loop."""
        clock = self.clock
        if not isinstance(clock, ManualClock):
            raise TypeError(
                "only a ManualClock can be advanced: open the broker with clock=ManualClock()"
            )
        return await in_thread(partial(clock.advance, by, **passed))  # type: ignore[arg-type]

    async def serve_ui(self, *, host: str = "127.0.0.1", port: int = 0) -> str:
        """Serve the dashboard of this broker, on its own clock, and return the URL.

        See `EmbeddedBroker.serve_ui`.
        """
        return await in_thread(partial(self._opened.serve_ui, host, port))

    async def _run(
        self,
        steps: Steps[T],
        *,
        soon: bool = False,
        give_back: Callable[[T], Steps[Any]] | None = None,
    ) -> T:
        return await self._thread.wait(steps, soon=soon, give_back=give_back)

    async def send(
        self,
        topic: str,
        body: bytes | str | None = None,
        **fields: Unpack[OneSendKeywords],
    ) -> Sent:
        """Send one message, due at a time, after a delay, or now.

        A send that is cancelled goes on.
        """
        _, given = split_limit(fields)
        return await self.send_soon(topic, body, **given)

    def send_soon(
        self,
        topic: str,
        body: bytes | str | None = None,
        **fields: Unpack[QueuedSendKeywords],
    ) -> EmbeddedSending:
        """Begin to send one message: await the returned object, or `flush()`, later.

        Errors in the arguments are raised here. Refusals that no caller has read are raised by
        `flush()` or `close()`.
        """
        row = self._calls.row(topic, body, fields)
        task = self._loop.create_task(self._send_one(topic, row))
        sending = EmbeddedSending(task)
        self._sends.add(sending)
        task.add_done_callback(lambda _: self._sent(sending))
        return sending

    def _sent(self, sending: EmbeddedSending) -> None:
        self._sends.discard(sending)
        if sending.unseen is not None:
            # A task that awaits this send reads the failure first, in this turn of the loop.
            self._loop.call_soon(self._note_failure, sending)

    def _note_failure(self, sending: EmbeddedSending) -> None:
        failure = sending.unseen
        if failure is not None:
            self._failures.append(failure)

    async def room(self) -> None:
        """Wait while the maximum number of sends is in flight."""
        while len(self._sends) >= PENDING_MAX:
            tasks = [sending.task for sending in self._sends]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    async def flush(self, **limits: Unpack[TimeLimit]) -> None:
        """Wait for all sends in flight.

        Raises SendFailed with the failures that no caller has read, and TimeoutError after
        the time limit; the sends then go on.
        """
        async with asyncio.timeout(limit_of("flush", limits)):
            while self._sends:
                await asyncio.wait([sending.task for sending in self._sends])
            # Failures are noted a turn of the loop after their sends have ended.
            await asyncio.sleep(0)
        failures, self._failures = self._failures, []
        if failures:
            raise SendFailed(failures)
