"""Ports: the interface between a worker and one shard.

There are ports of network clients and of queues in this process. A port is one shard, so no shard
waits for another. The worker decides how to react to failures, so no call is repeated while a shard
cannot be reached; only the search for a cluster's leader happens below, in the transport.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, Unpack

from delaylog.client._async.link import AsyncLink
from delaylog.client.errors import AnswerLost, NotReached
from delaylog.client.keywords import SettleTimes
from delaylog.client.models import Settled
from delaylog.client.shards.settlements import Verb
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.port_calls import Part, merged, settle_parts

if TYPE_CHECKING:
    from delaylog.client._async.surface import AsyncQueueClient
    from delaylog.client.message import LeasedMessage


class AsyncPort(Protocol):
    """One shard, for the topic, group and tags of one consumer.

    Several calls may be in progress at the same time.
    """

    @property
    def name(self) -> str:
        """The name of the shard in log messages."""

    async def receive(
        self, *, max: int, wait_ms: int, begin: int | None
    ) -> Sequence[LeasedMessage]:
        """Lease up to `max` ready messages for the consumer's `lease_ms`, all under one lease.

        An attempt begins at once at the first `begin` of them; None: at all.
        """

    async def settle(
        self, verb: Verb, messages: Sequence[LeasedMessage], **times: Unpack[SettleTimes]
    ) -> Sequence[Settled]:
        """Settle messages, with a result for each."""

    async def ack_and_receive(
        self, messages: Sequence[LeasedMessage], *, max: int, begin: int | None
    ) -> tuple[Sequence[Settled], Sequence[LeasedMessage]]:
        """Ack messages, with a result for each, and lease ready ones, in one call."""


class AsyncLinkPort:
    """One shard of an AsyncClient."""

    def __init__(self, link: AsyncLink, consumer: Consumer) -> None:
        self.name = link.name
        self._link = link
        self._wanted = consumer.wanted
        self._lease_ms = consumer.lease_ms

    async def receive(
        self, *, max: int, wait_ms: int, begin: int | None
    ) -> Sequence[LeasedMessage]:
        """Lease up to `max` ready messages."""
        wanted = replace(self._wanted, begin=begin)
        return await self._link.receive(
            wanted,
            max=max,
            wait_ms=wait_ms,
            lease_ms=self._lease_ms,
            limit_s=None,
            at_once=True,
        )

    async def settle(
        self, verb: Verb, messages: Sequence[LeasedMessage], **times: Unpack[SettleTimes]
    ) -> Sequence[Settled]:
        """Settle messages, with a result for each."""
        answered: list[tuple[Part, Sequence[Settled]]] = []
        for part in settle_parts(self._link.places, verb, messages, **times):
            doubts: list[Exception] = []
            try:
                answer = await self._link.carry(part.call, doubts=doubts)
            except NotReached as error:
                if not answered:
                    raise
                raise AnswerLost(f"a part was carried out; then {error}") from error
            answered.append((part, part.results(answer, doubtful=bool(doubts))))
        return merged(len(messages), answered)

    async def ack_and_receive(
        self, messages: Sequence[LeasedMessage], *, max: int, begin: int | None
    ) -> tuple[Sequence[Settled], Sequence[LeasedMessage]]:
        """Ack messages, with a result for each, and lease ready ones."""
        wanted = replace(self._wanted, begin=begin)
        return await self._link.ack_and_receive(messages, wanted, max=max, lease_ms=self._lease_ms)


class AsyncQueuePort:
    """The port of an object with a client's methods, such as an embedded broker."""

    def __init__(self, queue: AsyncQueueClient, consumer: Consumer) -> None:
        self.name = "this process"
        self._queue = queue
        self._consumer = consumer

    async def receive(
        self, *, max: int, wait_ms: int, begin: int | None
    ) -> Sequence[LeasedMessage]:
        """Lease up to `max` ready messages."""
        of = self._consumer
        return await self._queue.receive(
            of.topic,
            max=max,
            wait=timedelta(milliseconds=wait_ms),
            lease=of.lease,
            group=of.group,
            tags=of.tags,
            tags_mode=of.tags_mode,
            exact_tags=of.exact_tags,
            begin=begin,
            consumer=of.consumer_name,
        )

    async def settle(
        self, verb: Verb, messages: Sequence[LeasedMessage], **times: Unpack[SettleTimes]
    ) -> Sequence[Settled]:
        """Settle messages, with a result for each."""
        return await self._queue._settle(verb, messages, **times)

    async def ack_and_receive(
        self, messages: Sequence[LeasedMessage], *, max: int, begin: int | None
    ) -> tuple[Sequence[Settled], Sequence[LeasedMessage]]:
        """Ack messages, with a result for each, and lease ready ones."""
        results = await self.settle("ack", messages)
        return results, await self.receive(max=max, wait_ms=0, begin=begin)


def async_queue_ports(queue: AsyncQueueClient) -> Callable[[Consumer], Sequence[AsyncPort]]:
    """The `ports` argument of an AsyncWorker that consumes from this queue."""
    return lambda consumer: [AsyncQueuePort(queue, consumer)]
