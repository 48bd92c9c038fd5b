"""Calls about topics and groups, and those about the broker itself, for threads.

The one rule: all of them go the way of the API, so that there is one reading of each call.

Made from broker/embedded/async_broker_calls.py by `make twins`: change that one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

from delaylog.broker.embedded.calls import EmbeddedCalls, Settings, Steps
from delaylog.broker.embedded.direct import plain_client
from delaylog.client import PlainClient
from delaylog.client._sync.transaction import Transaction
from delaylog.client.calls import Call, topics
from delaylog.client.models import Forecast, GroupInfo, Stats, TopicInfo

T = TypeVar("T")


class BrokerCalls(ABC):
    """The calls; the class that inherits them knows the broker."""

    _calls: EmbeddedCalls

    @abstractmethod
    def _run(self, steps: Steps[T]) -> T:
        """Carry a call out."""

    @abstractmethod
    def call(self, call: Call[T]) -> T:
        """Carry out any call of the API."""

    def topics(self) -> list[TopicInfo]:
        """The topics of the namespace."""
        return self._run(self._calls.topics())

    def get_topic(self, topic: str) -> TopicInfo:
        """A topic and its settings. NotFound."""
        return self._run(self._calls.get_topic(topic))

    def put_topic(self, topic: str, settings: Settings = None) -> TopicInfo:
        """Make a topic, or replace its settings. Conflict where slots differ."""
        return self._run(self._calls.put_topic(topic, settings))

    def drop_topic(self, topic: str, *, force: bool = False) -> None:
        """Drop a topic: an empty one, or any by force. NotFound, Conflict."""
        self._run(self._calls.drop_topic(topic, force=force))

    def stats(self, topic: str, *, group: str | None = None, delay_buckets: bool = False) -> Stats:
        """Counts by state as a group sees them. NotFound."""
        return self._run(self._calls.stats(topic, group=group, delay_buckets=delay_buckets))

    def forecast(self, topic: str, **members: Any) -> Forecast:
        """Messages to come, by `minutes` and `hours`. NotFound."""
        shape = self.call(topics.forecast(self._calls.places, topic, **members))
        return Forecast.of(shape)

    def purge(
        self, topic: str, *, group: str | None = None, force: bool = False, erase: bool = False
    ) -> int:
        """End what waits or is ready, by `force` what is leased too; how many. NotFound.

        `erase`, with `force` and no group: every byte of the messages leaves the folder.
        """
        call = self._calls.purge(topic, group=group, force=force, erase=erase)
        return self._run(call)

    def pause(self, topic: str) -> None:
        """Hand nothing out; sends and settles go on. NotFound."""
        self.call(topics.pause(self._calls.places, topic))

    def resume(self, topic: str) -> None:
        """Hand out again. NotFound."""
        self.call(topics.resume(self._calls.places, topic))

    def groups(self, topic: str) -> list[GroupInfo]:
        """A topic's groups. NotFound."""
        return self._run(self._calls.groups(topic))

    def put_group(self, topic: str, group: str, *, ephemeral: bool = False) -> GroupInfo:
        """Make a group, which sees what is sent from now on."""
        return self._run(self._calls.put_group(topic, group, ephemeral=ephemeral))

    def drop_group(self, topic: str, group: str) -> None:
        """Drop a group. NotFound."""
        self.call(topics.drop_group(self._calls.places, topic, group))

    def broker(self) -> PlainClient:
        """The calls about the broker itself: jobs, transactions, its clock. Answers are JSON."""
        return plain_client(self, self._calls.places)

    def transaction(
        self, transaction: str | None = None, *, ttl_ms: int | None = None
    ) -> Transaction:
        """Messages that become visible together: `with broker.transaction() as together`."""
        return Transaction(self.broker(), transaction, ttl_ms)
