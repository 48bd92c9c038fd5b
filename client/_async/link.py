"""AsyncLink: one shard as an asyncio client uses it.

A link concerns one shard only, so none of its calls waits for another shard.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar, Unpack

from delaylog.client._async.message import AsyncMessage, messages_of
from delaylog.client.calls import messages as message_calls
from delaylog.client.calls.call import Call, Places
from delaylog.client.codec import Codec
from delaylog.client.errors import AnswerLost, ClientError, lost_after
from delaylog.client.keywords import SettleTimes
from delaylog.client.message import LeasedMessage, MessageBatch
from delaylog.client.models import Settled
from delaylog.client.shards.receives import HowMuch, Wanted, split_by_tags
from delaylog.client.shards.settlements import Share, Verb, results_of, shares
from delaylog.client.shards.sharding import Shard
from delaylog.client.wire.bulk import ReceivedBatch, SendAnswer
from delaylog.client.wire.exchange import OnRepeat

if TYPE_CHECKING:
    from delaylog.client._async.transport import AsyncTransport

T = TypeVar("T")
log = logging.getLogger("delaylog.client")


class InBand(Protocol):
    """The stream that messages came by."""

    async def settle(
        self, verb: Verb, share: Share, **times: Unpack[SettleTimes]
    ) -> list[Settled] | None:
        """Settle messages of one lease; None if it is not known whether that was done."""


class AsyncLink:
    """The connections to a shard, and the basic calls that clients are built from."""

    def __init__(
        self, shard: Shard, places: Places, transport: AsyncTransport, codec: Codec
    ) -> None:
        self.shard = shard
        self.name = shard.name
        self.places = places
        self.transport = transport
        self.codec = codec
        self.mismatched = 0
        """Messages that were returned to the broker because their tags did not match exactly."""

    async def carry(self, call: Call[T], *, doubts: list[Exception] | None = None) -> T:
        """Carry out a call. `doubts` collects the failures after which it was retried."""
        return await self.transport.carry(call, doubts=doubts)

    async def post(
        self,
        topic: str,
        wire: bytes,
        on_repeat: OnRepeat | None = None,
        limit_s: float | None = None,
    ) -> SendAnswer:
        """Send a bulk body that has a producer and a sequence; a sender repeats it.

        `on_repeat` is called with each failure after which a cluster is asked again.
        """
        call = message_calls.send_wire(self.places, topic, wire, limit_s=limit_s)
        return await self.transport.carry(replace(call, at_once=True), on_repeat=on_repeat)

    async def receive(
        self, wanted: Wanted, *, at_once: bool = False, **how_much: Unpack[HowMuch]
    ) -> list[AsyncMessage]:
        """Lease up to `max` messages of this shard, all under one lease."""
        call = message_calls.receive_batch(self.places, wanted, **how_much)
        return await self.messages_of(await self.carry(call.again(at_once=at_once)), wanted)

    async def ack_and_receive(
        self, messages: Sequence[LeasedMessage], wanted: Wanted, *, max: int, lease_ms: int
    ) -> tuple[list[Settled], list[AsyncMessage]]:
        """Ack messages of this shard, with a result each, and lease ready ones, in one call.

        It is not repeated while the shard cannot be reached.
        """
        doubts: list[Exception] = []
        receipts = [message.receipt for message in messages]
        call = message_calls.ack_and_receive_batch(
            self.places, wanted, receipts, max=max, lease_ms=lease_ms
        )
        answered, columns = await self.carry(call.again(at_once=True), doubts=doubts)
        results = results_of(answered, doubtful=bool(doubts))
        return results, await self.messages_of(columns, wanted)

    async def messages_of(
        self, columns: ReceivedBatch, wanted: Wanted, stream: InBand | None = None
    ) -> list[AsyncMessage]:
        """The messages of a batch that are wanted; `stream` settles them while it is open."""
        batch = MessageBatch(columns, wanted.topic, wanted.group, self.name)
        found = messages_of(batch, self)
        if wanted.exact_tags:
            found, others = split_by_tags(found, wanted.tags, wanted.tags_mode)
            if others:
                self.mismatched += len(others)
                await self.give_back(others)
        # Not before: who reads the stream is here, and would wait for an answer by it.
        batch.stream = stream
        return found

    async def settle(
        self, verb: Verb, share: Share, *, at_once: bool = False, **times: Unpack[SettleTimes]
    ) -> list[Settled]:
        """Settle messages of one lease, with a result each.

        The call is idempotent, so it is retried after a lost answer: for a while on a cluster, once
        on a single broker, which may have closed an idle connection. Then AnswerLost is raised.
        """
        doubts: list[Exception] = []
        began_s = time.monotonic()
        stream: InBand | None = share.batch.stream
        if stream is not None and share.batch.settler is self:
            results = await stream.settle(verb, share, **times)
            if results is not None:
                return results
            doubts.append(AnswerLost("the stream has ended"))
        call = message_calls.settle_columns(
            self.places,
            share.batch.topic,
            verb,
            share.batch.columns.lease,
            share.refs,
            **times,
        )
        try:
            answer = await self.carry(call.again(at_once=at_once), doubts=doubts)
        except AnswerLost as lost:
            if self.transport.route.known > 1:
                raise
            limit_s = self.transport.times.timeout_s if call.limit_s is None else call.limit_s
            left_s = limit_s - (time.monotonic() - began_s)
            if left_s <= 0:
                raise
            doubts.append(lost)
            call = replace(call, limit_s=left_s, at_once=at_once)
            answer = await self._once_more(call, lost)
        return share.results(answer.gone, answer.unknown, doubtful=bool(doubts))

    async def _once_more(self, call: Call[T], lost: AnswerLost) -> T:
        """Retry once. Any failure becomes AnswerLost: the first try may have been carried out."""
        try:
            return await self.carry(call)
        except ClientError as error:
            raise lost_after(lost, error) from error

    async def give_back(self, messages: Sequence[LeasedMessage]) -> None:
        """Return messages to the broker. If that fails, their leases expire."""
        for share in shares(messages):
            try:
                await self.settle("extend", share, at_once=True, lease_ms=0)
            except ClientError as error:
                log.info("cannot return messages to %s; their leases expire: %s", self.name, error)

    async def close(self) -> None:
        """Close the connections. Calls in progress raise AnswerLost."""
        await self.transport.close()
