"""AsyncMessage: a received message and the calls that settle it.

A message refers to its shard's link, and no link refers to messages: a dropped batch is freed at
once. A message remembers that it was settled here, so that a worker or a `with` block does not
settle it a second time.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol, Self, Unpack

from delaylog.client._async.settle_calls import of_itself
from delaylog.client.calls import verbs
from delaylog.client.codec import Codec
from delaylog.client.errors import ClientError
from delaylog.client.handlers import Reject, Retry, enter, leave, reason_of
from delaylog.client.keywords import SettleTimes
from delaylog.client.message import LeasedMessage, MessageBatch
from delaylog.client.models import Settled
from delaylog.client.shards.settlements import Share, Verb
from delaylog.client.wire.checks import check_keywords

log = logging.getLogger("delaylog.client")


class AsyncSettler(Protocol):
    """The shard that a message came from."""

    codec: Codec

    async def settle(self, verb: Verb, share: Share, **times: Unpack[SettleTimes]) -> list[Settled]:
        """Settle messages of one lease, with a result each."""


class AsyncMessage(LeasedMessage):
    """A received message under a lease. Settle it by its methods, or by those of the client.

    `async with message:` acks it at the end of the block and nacks it after an exception. `Retry`
    and `Reject` end the block and decide otherwise. A message that was settled inside the block is
    left alone.

    Each method returns a `Settled`: `done`, `gone` (the lease had ended before) or `unknown` (an
    answer was lost). Errors are those of the client's `ack`. When a method finds that the lease of
    an unsettled message had ended, `lease_lost` becomes true and a WARNING is logged.
    """

    __slots__ = ()

    ack = of_itself(verbs.ack)
    nack = of_itself(verbs.nack)
    reject = of_itself(verbs.reject)
    release = of_itself(verbs.release)
    extend = of_itself(verbs.extend)
    begin = of_itself(verbs.begin)

    async def _settle(self, verb: Verb, **times: Any) -> Settled:
        check_keywords(verb, times, SettleTimes)
        settler: AsyncSettler | None = self.batch.settler
        assert settler is not None, "a receive gives its messages a settler"
        before = self.settled
        ends_lease = verb != "begin" and not times.get("lease_ms")
        if ends_lease:
            # Before the call: meanwhile a worker must not take the end of the lease for a loss.
            self.settled = True
        try:
            (result,) = await settler.settle(verb, Share(self.batch, (0,), (self.row,)), **times)
        except BaseException:
            if ends_lease:
                self.settled = before
            raise
        if result is Settled.GONE and not (before if ends_lease else self.settled):
            self.settled = False
            self._lose(verb)
        return result

    def _lose(self, verb: Verb) -> None:
        """Record that a call found the lease ended, and log it: many callers read no result."""
        if not self.lease_lost:
            self.lease_lost = True
            log.warning(
                "%s: the lease of message %s ended before its %s: it is delivered again",
                self.topic,
                self.id,
                verb,
            )

    async def __aenter__(self) -> Self:
        enter(self)
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        leave(self)
        decided = isinstance(error, (Retry, Reject))
        if self.settled:
            return decided
        if error is None:
            await self.ack()
            return False
        try:
            if isinstance(error, Reject):
                await self.reject(reason_of(error))
            else:
                delay_ms = error.delay_ms if isinstance(error, Retry) else None
                await self._settle("nack", delay_ms=delay_ms, reason=reason_of(error))
        except ClientError as failure:
            # The error of the block matters more; the message returns when its lease ends.
            log.warning("%s: cannot return message %s: %s", self.topic, self.id, failure)
        return decided


def messages_of(batch: MessageBatch, settler: AsyncSettler) -> list[AsyncMessage]:
    """One message per row, in the broker's order."""
    batch.settler, batch.codec = settler, settler.codec
    return [AsyncMessage(batch, row) for row in range(batch.columns.n)]
