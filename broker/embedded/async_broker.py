"""AsyncEmbeddedBroker: the embedded broker for event loops, with the methods of `AsyncClient`.

It stands on the same node as the one for threads, not on that of a broker that serves: so a manual
clock moves it too, and there is one way in which calls are decided. A call holds the lock only
while it decides; for the disk, and for messages to come, it is awaited, and the loop goes on.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from delaylog.broker.embedded.async_broker_calls import AsyncBrokerCalls
from delaylog.broker.embedded.calls import Steps
from delaylog.broker.embedded.clocks import ManualClock
from delaylog.broker.embedded.opened import ClockT, Opened
from delaylog.broker.embedded.waits.driving import LoopDriver
from delaylog.broker.embedded.waits.sendings import EmbeddedSending
from delaylog.client._async.workers.ports import async_queue_ports
from delaylog.client._async.workers.worker import AsyncWorker
from delaylog.client.errors import SendFailed
from delaylog.client.keywords import SendKeywords
from delaylog.client.message import MessageBatch
from delaylog.client.shards.receiving import Wanted

if TYPE_CHECKING:
    from delaylog.client.surface import AsyncQueueClient

T = TypeVar("T")
PENDING_MAX: Final = 10_000
"""Sends under way for which `room` lets another one come; each is a task."""


class AsyncEmbeddedBroker(AsyncBrokerCalls[ClockT]):
    """One folder, opened by `async with delaylog.open_async(path)`; it belongs to one loop."""

    def __init__(self, opened: Opened[ClockT]) -> None:
        super().__init__(opened)
        AsyncWorker.__init__(self, async_queue_ports(self))
        self._loop = asyncio.get_running_loop()
        self._driver = LoopDriver(opened.node, self._loop)
        self._sends: set[EmbeddedSending] = set()
        self._failures: list[BaseException] = []

    async def close(self) -> None:
        """Stop consuming, then end: everything is on the disk, and the folder is free.

        SendFailed as of `flush`.
        """
        try:
            if not self._node.closed:
                try:
                    await self.stop()
                except BaseException:
                    # What it says is what comes out of here; sends under way go on all the same.
                    with suppress(SendFailed):
                        await self.flush()
                    raise
                await self.flush()
        finally:
            await asyncio.to_thread(self._opened.close)
            self._driver.close()

    async def advance(self, by: timedelta | None = None, **passed: float) -> int:
        """Move a manual clock, as its own `advance` does, while the loop goes on."""
        clock = self.clock
        if not isinstance(clock, ManualClock):
            raise TypeError("only a ManualClock is moved; open the broker with clock=ManualClock()")
        return await asyncio.to_thread(clock.advance, by, **passed)  # type: ignore[arg-type]

    async def _run(self, steps: Steps[T]) -> T:
        return await self._driver.run(steps)

    def send(
        self,
        topic: str,
        body: bytes | str,
        **fields: Unpack[SendKeywords],
    ) -> EmbeddedSending:
        """Hand one message over: await what is returned, or `flush()` after many.

        What can be judged without the broker is raised here.
        """
        steps = self._calls.send(topic, body, **fields)
        task = self._loop.create_task(self._run(steps))
        sending = EmbeddedSending(task)
        self._sends.add(sending)
        task.add_done_callback(lambda _: self._sent(sending))
        return sending

    def _sent(self, sending: EmbeddedSending) -> None:
        self._sends.discard(sending)
        if sending.unseen is not None:
            # Whoever awaits it learns of it in this turn of the loop, or has begun to.
            self._loop.call_soon(self._note_failure, sending)

    def _note_failure(self, sending: EmbeddedSending) -> None:
        failure = sending.unseen
        if failure is not None:
            self._failures.append(failure)

    async def room(self) -> None:
        """Wait until another send may be handed over: at once unless very many are under way."""
        while len(self._sends) >= PENDING_MAX:
            tasks = [sending.task for sending in self._sends]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait for all sends under way. SendFailed with what nobody has awaited.

        TimeoutError after `timeout_s`: it goes on.
        """
        async with asyncio.timeout(timeout_s):
            while self._sends:
                await asyncio.wait([sending.task for sending in self._sends])
                await asyncio.sleep(0)
        failures, self._failures = self._failures, []
        if failures:
            raise SendFailed(failures)

    async def _receive(
        self, wanted: Wanted, *, max: int, wait_ms: int, lease_ms: int | None
    ) -> MessageBatch:
        steps = self._calls.receive(wanted, max=max, wait_ms=wait_ms, lease_ms=lease_ms)
        return await self._driver.run(steps, give_back=self._give_back)

    def _give_back(self, batch: MessageBatch) -> Steps[Any]:
        return self._calls.settle("extend", batch, lease_ms=0, wait=False)


if TYPE_CHECKING:
    # What recipes and workers are written against.
    _SURFACE: type[AsyncQueueClient] = AsyncEmbeddedBroker[Any]
