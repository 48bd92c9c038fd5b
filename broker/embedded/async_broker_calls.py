"""Calls of the embedded brokers, for both of them: messages, topics, groups, the broker itself.

The one rule: all of them go the way of the API, so that there is one reading of each call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from delaylog.broker.embedded.calls import EmbeddedCalls, Settings, Steps
from delaylog.broker.embedded.direct import async_plain_client
from delaylog.client import AsyncPlainClient
from delaylog.client._async.transaction import AsyncTransaction
from delaylog.client.calls import Call, topics
from delaylog.client.message import Message, MessageBatch
from delaylog.client.models import (
    Changed,
    Forecast,
    GroupInfo,
    MessageInfo,
    Settled,
    Stats,
    TopicInfo,
)
from delaylog.client.receiving import Wanted

T = TypeVar("T")


class AsyncBrokerCalls(ABC):
    """The calls; the class that inherits them knows the broker."""

    _calls: EmbeddedCalls

    @abstractmethod
    async def _run(self, steps: Steps[T]) -> T:
        """Carry a call out."""

    @abstractmethod
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
        """Lease messages as columns."""

    async def call(self, call: Call[T]) -> T:
        """Carry out any call of the API (`delaylog.client.calls`)."""
        return await self._run(self._calls.carry(call))

    # ------------------------------------------------------------------ messages

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
        """Lease up to `max` ready messages, all under one lease.

        With `wait_ms` it waits for one: of real time, also under a manual clock; there it returns
        too when so much of that clock's time has passed. A task that is cancelled has taken
        nothing, or given back what had come.
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

    async def settle_ids(
        self, topic: str, verb: str, ids: Sequence[str], **members: int | str | None
    ) -> list[Settled]:
        """`ack`, `nack` or `extend` by bare ids, whoever has the messages."""
        return await self._run(self._calls.settle_ids(topic, verb, ids, members))

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

    # ------------------------------------------------------------------ topics, groups, the broker

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
        self, topic: str, *, group: str | None = None, delay_buckets: bool = False
    ) -> Stats:
        """Counts by state as a group sees them. NotFound."""
        return await self._run(self._calls.stats(topic, group=group, delay_buckets=delay_buckets))

    async def forecast(self, topic: str, **members: Any) -> Forecast:
        """Messages to come, by `minutes` and `hours`. NotFound."""
        shape = await self.call(topics.forecast(self._calls.places, topic, **members))
        return Forecast.of(shape)

    async def purge(
        self, topic: str, *, group: str | None = None, force: bool = False, erase: bool = False
    ) -> int:
        """End what waits or is ready, by `force` what is leased too; how many. NotFound.

        `erase`, with `force` and no group: every byte of the messages leaves the folder.
        """
        call = self._calls.purge(topic, group=group, force=force, erase=erase)
        return await self._run(call)

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

    def broker(self) -> AsyncPlainClient:
        """The calls about the broker itself: jobs, transactions, its clock. Answers are JSON."""
        return async_plain_client(self, self._calls.places)

    def transaction(
        self, transaction: str | None = None, *, ttl_ms: int | None = None
    ) -> AsyncTransaction:
        """Messages that become visible together: `async with broker.transaction() as together`."""
        return AsyncTransaction(self.broker(), transaction, ttl_ms)
