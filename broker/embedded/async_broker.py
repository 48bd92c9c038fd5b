"""AsyncEmbeddedBroker: the embedded broker for event loops, with the methods of `AsyncClient`.

It stands on the same node as the one for threads, not on that of a broker that serves: so a manual
clock moves it too, and there is one way in which calls are decided. A call holds the lock only
while it decides; for the disk, and for messages to come, it is awaited, and the loop goes on.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from delaylog.broker.embedded.broker import ClockT
from delaylog.broker.embedded.calls import EmbeddedCalls, Settings, Steps
from delaylog.broker.embedded.clocks import ManualClock
from delaylog.broker.embedded.driving import LoopDriver
from delaylog.broker.embedded.hot import Settling
from delaylog.broker.embedded.node import EmbeddedNode
from delaylog.client.bulk import SendAnswer, Texts
from delaylog.client.calls import Call, topics
from delaylog.client.errors import SendFailed
from delaylog.client.message import Message, MessageBatch
from delaylog.client.models import (
    Changed,
    Forecast,
    GroupInfo,
    MessageInfo,
    NewMessage,
    Sent,
    Settled,
    Stats,
    TopicInfo,
)
from delaylog.client.receiving import Wanted

if TYPE_CHECKING:
    from delaylog.client.surface import AsyncQueueClient

T = TypeVar("T")


class EmbeddedSending:
    """A send that was handed over: await it, or let `flush()` wait for it."""

    __slots__ = ("_looked", "_task")

    def __init__(self, task: asyncio.Task[Sent]) -> None:
        self._task = task
        self._looked = False

    def __await__(self) -> Generator[Any, None, Sent]:
        self._looked = True
        # Whoever waits may be cancelled; the send goes on.
        return asyncio.shield(self._task).__await__()

    def done(self) -> bool:
        """Whether it was sent, or refused."""
        return self._task.done()

    def exception(self) -> BaseException | None:
        """Why it was refused, None when it was sent. InvalidStateError while it is under way."""
        self._looked = True
        return self._task.exception()

    @property
    def unseen(self) -> BaseException | None:
        """Why it was refused, if nobody has looked."""
        if self._looked or not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()


class AsyncEmbeddedBroker(Generic[ClockT]):
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
        await self.close()

    async def close(self) -> None:
        """End: everything is on the disk, and the folder is free. SendFailed as of `flush`."""
        try:
            if not self._node.closed:
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
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        at: datetime | None = None,
        delay: timedelta | None = None,
        id: str | None = None,
        key: str | None = None,
        tags: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        priority: int | None = None,
        ttl_ms: int | None = None,
        max_retry: int | None = None,
        merge: str | None = None,
    ) -> EmbeddedSending:
        """Hand one message over: await what is returned, or `flush()` after many.

        What can be judged without the broker is raised here.
        """
        steps = self._calls.send(
            topic,
            body,
            deliver_at_ms=deliver_at_ms,
            delay_ms=delay_ms,
            at=at,
            delay=delay,
            id=id,
            key=key,
            tags=tags,
            headers=headers,
            priority=priority,
            ttl_ms=ttl_ms,
            max_retry=max_retry,
            merge=merge,
        )
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
        self, topic: str, messages: Iterable[NewMessage | bytes | str], **defaults: Any
    ) -> list[Sent]:
        """Send all of them, or none where one is wrong; `defaults` are members as of `send`."""
        return await self._run(self._calls.send_many(topic, messages, **defaults))

    async def send_columns(self, topic: str, bodies: Texts, **columns: Any) -> SendAnswer:
        """Send columns as `client.bulk.encode_send` takes them; without a time they are due now."""
        return await self._run(self._calls.send_columns(topic, bodies, **columns))

    async def flush(self) -> None:
        """Wait for all sends under way. SendFailed with what nobody has awaited."""
        while self._sends:
            await asyncio.wait([sending._task for sending in self._sends])
            await asyncio.sleep(0)
        failures, self._failures = self._failures, []
        if failures:
            raise SendFailed(failures)

    # ------------------------------------------------------------------ receive and settle

    async def receive(
        self,
        topic: str,
        *,
        max: int = 1,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
        tags_mode: str = "any",
        exact_tags: bool = False,
        ids: Sequence[str] = (),
    ) -> list[Message]:
        """Lease up to `max` ready messages; see `EmbeddedBroker.receive`.

        Cancelled while it waits it has taken nothing.
        """
        # It always looks at the tags themselves, but what a client refuses is refused here too.
        Wanted.checked(topic, group, tags, tags_mode, exact_tags, ids)
        batch = await self.receive_columns(
            topic,
            max=max,
            wait_ms=wait_ms,
            lease_ms=lease_ms,
            group=group,
            tags=tags,
            tags_mode=tags_mode,
            ids=ids,
        )
        return batch.messages()

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
        return await self._run(
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

    async def ack(self, messages: Settling) -> list[Settled]:
        """They are done with; a result for each."""
        return await self._run(self._calls.settle("ack", messages))

    async def nack(self, messages: Settling, *, delay_ms: int | None = None) -> list[Settled]:
        """They come again after a while; None = the topic's backoff."""
        return await self._run(self._calls.settle("nack", messages, delay_ms=delay_ms))

    async def extend(self, messages: Settling, *, lease_ms: int) -> list[Settled]:
        """They are held so long from now; 0 gives them back."""
        return await self._run(self._calls.settle("extend", messages, lease_ms=lease_ms))

    async def settle_ids(
        self, topic: str, verb: str, ids: Sequence[str], **members: int | str | None
    ) -> list[Settled]:
        """`ack`, `nack` or `extend` by bare ids, whoever has the messages."""
        return await self._run(self._calls.settle_ids(topic, verb, ids, members))

    # ------------------------------------------------------------------ look and change

    async def peek(self, topic: str, *, max: int = 1, **members: Any) -> list[MessageInfo]:
        """What is ready, without leasing it; `members` as of `receive`."""
        return await self._run(self._calls.peek(topic, {"max": max, **members}))

    async def get(
        self, topic: str, id: str, *, group: str | None = None, life: bool = False
    ) -> MessageInfo:
        """One message as a group sees it; `life` adds its steps. NotFound."""
        return await self._run(self._calls.get(topic, id, group=group, life=life))

    def messages(self, topic: str, **filter: Any) -> AsyncIterator[MessageInfo]:
        """The topic's messages in due order, those that a filter wants; see GET …/messages."""
        return self._pages(topic, "messages", filter)

    def dead(self, topic: str, **filter: Any) -> AsyncIterator[MessageInfo]:
        """Dead letters, with why and how they died."""
        return self._pages(topic, "dead", filter)

    async def _pages(
        self, topic: str, kind: str, filter: dict[str, Any]
    ) -> AsyncIterator[MessageInfo]:
        cursor: str | None = None
        while True:
            wanted = filter if cursor is None else {**filter, "cursor": cursor}
            found, cursor = await self._run(self._calls.page(topic, kind, wanted))
            for each in found:
                yield each
            if cursor is None:
                return

    async def cancel(self, topic: str, id: str, *, force: bool = False) -> Changed:
        """End one before its delivery. NotFound, TooLate."""
        return await self._run(self._calls.cancel(topic, id, force=force))

    async def reschedule(
        self,
        topic: str,
        id: str,
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        at: datetime | None = None,
        delay: timedelta | None = None,
        priority: int | None = None,
    ) -> Changed:
        """Another time or priority for one that waits or is ready. NotFound, TooLate."""
        return await self._run(
            self._calls.reschedule(topic, id, deliver_at_ms, delay_ms, at, delay, priority)
        )

    async def replay(
        self,
        topic: str,
        ids: Sequence[str],
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        at: datetime | None = None,
        delay: timedelta | None = None,
    ) -> list[Changed]:
        """Let dead ones live again, at a time or now, with a result each."""
        return await self._run(self._calls.replay(topic, ids, deliver_at_ms, delay_ms, at, delay))

    # ------------------------------------------------------------------ topics and groups

    async def topics(self) -> list[TopicInfo]:
        """The topics of the namespace."""
        return await self._run(self._calls.topics())

    async def get_topic(self, topic: str) -> TopicInfo:
        """A topic and its settings. NotFound."""
        return await self._run(self._calls.get_topic(topic))

    async def put_topic(self, topic: str, settings: Settings = None) -> TopicInfo:
        """Make a topic, or replace its settings. Conflict where slots differ."""
        return await self._run(self._calls.put_topic(topic, settings))

    async def drop_topic(self, topic: str, *, force: bool = False) -> None:
        """Drop a topic: an empty one, or any by force. NotFound, Conflict."""
        await self._run(self._calls.drop_topic(topic, force=force))

    async def stats(
        self, topic: str, *, group: str | None = None, delay_buckets: bool = True
    ) -> Stats:
        """Counts by state as a group sees them. NotFound."""
        return await self._run(self._calls.stats(topic, group=group, delay_buckets=delay_buckets))

    async def forecast(self, topic: str, **members: Any) -> Forecast:
        """Messages to come, by `minutes` and `hours`. NotFound."""
        shape = await self.call(topics.forecast(self._calls.places, topic, **members))
        return Forecast.of(shape)

    async def purge(self, topic: str, *, group: str | None = None, force: bool = False) -> int:
        """End what waits or is ready, by `force` what is leased too; how many. NotFound."""
        return await self._run(self._calls.purge(topic, group=group, force=force))

    async def pause(self, topic: str) -> None:
        """Hand nothing out; sends and settles go on. NotFound."""
        await self.call(topics.pause(self._calls.places, topic))

    async def resume(self, topic: str) -> None:
        """Hand out again. NotFound."""
        await self.call(topics.resume(self._calls.places, topic))

    async def groups(self, topic: str) -> list[GroupInfo]:
        """A topic's groups. NotFound."""
        return await self._run(self._calls.groups(topic))

    async def put_group(self, topic: str, group: str, *, ephemeral: bool = False) -> GroupInfo:
        """Make a group, which sees what is sent from now on."""
        return await self._run(self._calls.put_group(topic, group, ephemeral=ephemeral))

    async def drop_group(self, topic: str, group: str) -> None:
        """Drop a group. NotFound."""
        await self.call(topics.drop_group(self._calls.places, topic, group))

    async def call(self, call: Call[T]) -> T:
        """Carry out any call of the API (`delaylog.client.calls`)."""
        return await self._run(self._calls.carry(call))


if TYPE_CHECKING:
    # What recipes and workers are written against.
    _SURFACE: type[AsyncQueueClient] = AsyncEmbeddedBroker[Any]
