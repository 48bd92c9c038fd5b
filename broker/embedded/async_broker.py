"""AsyncEmbeddedBroker: the embedded broker for event loops, with the methods of `AsyncClient`.

It stands on the same node as the one for threads, not on that of a broker that serves: so a manual
clock moves it too, and there is one way in which calls are decided. A call holds the lock only
while it decides; for the disk, and for messages to come, it is awaited, and the loop goes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, Unpack

from delaylog.broker.embedded.async_broker_calls import AsyncBrokerCalls
from delaylog.broker.embedded.broker import ClockT
from delaylog.broker.embedded.calls import EmbeddedCalls, Steps
from delaylog.broker.embedded.clocks import ManualClock
from delaylog.broker.embedded.driving import LoopDriver
from delaylog.broker.embedded.hot import ToSettle
from delaylog.broker.embedded.node import ClosedError, EmbeddedNode
from delaylog.broker.embedded.sendings import EmbeddedSending
from delaylog.broker.embedded.taking import Taking
from delaylog.client._async.workers.ports import async_queue_ports
from delaylog.client._async.workers.worker import AsyncWorker
from delaylog.client.bulk import SendAnswer, Texts
from delaylog.client.errors import ClientError, SendFailed
from delaylog.client.message import MessageBatch
from delaylog.client.models import (
    NewMessage,
    SendKeywords,
    Sent,
    Settled,
)

if TYPE_CHECKING:
    from delaylog.client.surface import AsyncQueueClient

T = TypeVar("T")
PENDING_MAX: Final = 10_000
"""Sends under way for which `room` lets another one come; each is a task."""
log = logging.getLogger("delaylog.embedded")


class AsyncEmbeddedBroker(AsyncBrokerCalls, AsyncWorker, Generic[ClockT]):
    """One folder, opened by `async with delaylog.open_async(path)`; it belongs to one loop."""

    def __init__(self, node: EmbeddedNode, clock: ClockT, lock: int, namespace: str) -> None:
        """Over a node that runs, inside the loop; `lock` is what keeps the folder."""
        self._node = node
        self._lock: int | None = lock
        self._closing = threading.Lock()
        self._calls = EmbeddedCalls(node, namespace)
        self._loop = asyncio.get_running_loop()
        self._driver = LoopDriver(node, self._loop)
        self._sends: set[EmbeddedSending] = set()
        self._failures: list[BaseException] = []
        AsyncWorker.__init__(self, async_queue_ports(self))
        self.clock = clock
        """Its clock. `await broker.advance(days=30)` moves a manual one without blocking."""

    def __repr__(self) -> str:
        state = "closed" if self._node.closed else "open"
        return f"<AsyncEmbeddedBroker {self._node.engine.folder} {state}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except ClientError:
            # What went wrong inside says more than what it took along.
            if error is None:
                raise
            log.exception("while leaving by an error")

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
            await asyncio.to_thread(self._close)
            self._driver.close()

    def _close(self) -> None:
        # The folder is free when the first of several that close it has written everything.
        with self._closing:
            try:
                if isinstance(self.clock, ManualClock) and not self._node.closed:
                    self.clock.detach(self._node)
                self._node.close()
            finally:
                lock, self._lock = self._lock, None
                if lock is not None:
                    os.close(lock)

    async def advance(self, by: timedelta | None = None, **passed: float) -> int:
        """Move a manual clock, as its own `advance` does, while the loop goes on."""
        clock = self.clock
        if not isinstance(clock, ManualClock):
            raise TypeError("only a ManualClock is moved; open the broker with clock=ManualClock()")
        return await asyncio.to_thread(clock.advance, by, **passed)  # type: ignore[arg-type]

    async def _run(self, steps: Steps[T]) -> T:
        return await self._driver.run(steps)

    # ------------------------------------------------------------------ send

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

    async def send_many(
        self,
        topic: str,
        messages: Iterable[NewMessage | bytes | str],
        **defaults: Unpack[SendKeywords],
    ) -> list[Sent]:
        """Send all of them, or none where one is wrong; `defaults` are members as of `send`."""
        return await self._run(self._calls.send_many(topic, messages, **defaults))

    async def send_columns(self, topic: str, bodies: Texts, **columns: Any) -> SendAnswer:
        """Send columns as `client.bulk.encode_send` takes them; without a time they are due now."""
        return await self._run(self._calls.send_columns(topic, bodies, **columns))

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

    # ------------------------------------------------------------------ receive and settle

    async def receive_columns(
        self,
        topic: str,
        *,
        max: int = 1_000,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
        tags_mode: str = "any",
        ids: Sequence[str] = (),
    ) -> MessageBatch:
        """The same as columns: nothing is made for each message. It is settled as a whole."""
        taking = Taking(
            self._calls.receive(
                topic,
                max=max,
                wait_ms=wait_ms,
                lease_ms=lease_ms,
                group=group,
                tags=tags,
                tags_mode=tags_mode,
                ids=ids,
            )
        )
        try:
            return await self._run(taking)
        except asyncio.CancelledError:
            if taking.taken:
                await self._give_back(taking)
            raise

    async def _give_back(self, taking: Taking[MessageBatch]) -> None:
        """End a receive that nobody waits for any more; this waits for nothing itself."""
        with suppress(ClosedError):
            batch = await self._run(taking)
            await self._run(self._calls.settle("extend", batch, lease_ms=0, wait=False))

    async def ack(self, messages: ToSettle) -> list[Settled]:
        """They are done with; a result for each."""
        return await self._run(self._calls.settle("ack", messages))

    async def nack(self, messages: ToSettle, *, delay_ms: int | None = None) -> list[Settled]:
        """They come again after a while; None = the topic's backoff."""
        return await self._run(self._calls.settle("nack", messages, delay_ms=delay_ms))

    async def extend(self, messages: ToSettle, *, lease_ms: int) -> list[Settled]:
        """They are held so long from now; 0 gives them back."""
        return await self._run(self._calls.settle("extend", messages, lease_ms=lease_ms))


if TYPE_CHECKING:
    # What recipes and workers are written against.
    _SURFACE: type[AsyncQueueClient] = AsyncEmbeddedBroker[Any]
