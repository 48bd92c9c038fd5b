"""Calls about topics and groups, and those about the broker itself, for event loops.

The one rule: all of them go the way of the API, so that there is one reading of each call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

from delaylog.broker.embedded.calls import EmbeddedCalls, Settings, Steps
from delaylog.broker.embedded.direct import async_plain_client
from delaylog.client import AsyncPlainClient
from delaylog.client._async.transaction import AsyncTransaction
from delaylog.client.calls import Call, topics
from delaylog.client.models import Forecast, GroupInfo, Stats, TopicInfo

T = TypeVar("T")


class AsyncBrokerCalls(ABC):
    """The calls; the class that inherits them knows the broker."""

    _calls: EmbeddedCalls

    @abstractmethod
    async def _run(self, steps: Steps[T]) -> T:
        """Carry a call out."""

    @abstractmethod
    async def call(self, call: Call[T]) -> T:
        """Carry out any call of the API."""

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
