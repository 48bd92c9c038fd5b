"""Calls of the embedded brokers, for both of them: messages, topics, groups, the broker itself.

The one rule: all of them go the way of the API, so that there is one reading of each call.

Made from broker/embedded/async_broker_calls.py by `make twins`: change that one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from delaylog.broker.embedded.calls import EmbeddedCalls, Settings, Steps
from delaylog.broker.embedded.direct import plain_client
from delaylog.client import PlainClient
from delaylog.client._sync.transaction import Transaction
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


class BrokerCalls(ABC):
    """The calls; the class that inherits them knows the broker."""

    _calls: EmbeddedCalls

    @abstractmethod
    def _run(self, steps: Steps[T]) -> T:
        """Carry a call out."""

    @abstractmethod
    def receive_columns(
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

    def call(self, call: Call[T]) -> T:
        """Carry out any call of the API (`delaylog.client.calls`)."""
        return self._run(self._calls.carry(call))

    # ------------------------------------------------------------------ messages

    def receive(
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
        batch = self.receive_columns(
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

    def settle_ids(
        self, topic: str, verb: str, ids: Sequence[str], **members: int | str | None
    ) -> list[Settled]:
        """`ack`, `nack` or `extend` by bare ids, whoever has the messages."""
        return self._run(self._calls.settle_ids(topic, verb, ids, members))

    def peek(self, topic: str, *, max: int = 1, **members: Any) -> list[MessageInfo]:
        """What is ready, without leasing it; `members` as of `receive`."""
        return self._run(self._calls.peek(topic, {"max": max, **members}))

    def get(
        self, topic: str, id: str, *, group: str | None = None, life: bool = False
    ) -> MessageInfo:
        """One message as a group sees it; `life` adds its steps. NotFound."""
        return self._run(self._calls.get(topic, id, group=group, life=life))

    def messages(self, topic: str, **filter: Any) -> Iterator[MessageInfo]:
        """The topic's messages in due order, those that a filter wants; see GET …/messages."""
        return self._pages(topic, "messages", filter)

    def dead(self, topic: str, **filter: Any) -> Iterator[MessageInfo]:
        """Dead letters, with why and how they died."""
        return self._pages(topic, "dead", filter)

    def _pages(self, topic: str, kind: str, filter: dict[str, Any]) -> Iterator[MessageInfo]:
        cursor: str | None = None
        while True:
            wanted = filter if cursor is None else {**filter, "cursor": cursor}
            found, cursor = self._run(self._calls.page(topic, kind, wanted))
            yield from found
            if cursor is None:
                return

    def cancel(self, topic: str, id: str, *, force: bool = False) -> Changed:
        """End one before its delivery. NotFound, TooLate."""
        return self._run(self._calls.cancel(topic, id, force=force))

    def reschedule(
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
        return self._run(
            self._calls.reschedule(topic, id, deliver_at_ms, delay_ms, at, delay, priority)
        )

    def replay(
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
        return self._run(self._calls.replay(topic, ids, deliver_at_ms, delay_ms, at, delay))

    # ------------------------------------------------------------------ topics, groups, the broker

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
