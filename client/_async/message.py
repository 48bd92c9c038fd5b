"""AsyncMessage: a received message and the calls that settle it.

A message refers to its shard's link, and no link refers to messages: a dropped batch is freed at
once. A message remembers that it was settled here, so that a worker or a `with` block does not
settle it a second time.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Protocol, Self, Unpack

from delaylog.client.codec import Codec
from delaylog.client.errors import ClientError
from delaylog.client.holding import enter, leave
from delaylog.client.keywords import SettleTimes, TimeLimit
from delaylog.client.message import LeasedMessage, MessageBatch
from delaylog.client.models import Settled
from delaylog.client.outcomes import Reject, Retry, reason_of
from delaylog.client.shards.settling import Share, Verb
from delaylog.client.wire.checks import check_keywords
from delaylog.client.wire.durations import delay_of, duration_ms, lease_of

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

    async def ack(self, **limits: Unpack[TimeLimit]) -> Settled:
        """Acknowledge the message: it is done and not delivered again."""
        return await self._end("ack", **limits)

    async def nack(
        self,
        *,
        delay: timedelta | None = None,
        delay_ms: int | None = None,
        reason: str | None = None,
        **limits: Unpack[TimeLimit],
    ) -> Settled:
        """Have it delivered again after this delay; without one after its backoff.

        After `max_retry` retries it becomes a dead letter instead. The broker stores the reason (up
        to 1,024 bytes) with the attempt.
        """
        back_ms = delay_of(delay, delay_ms)
        return await self._end("nack", delay_ms=back_ms, reason=reason, **limits)

    async def reject(self, reason: str | None = None, **limits: Unpack[TimeLimit]) -> Settled:
        """Make it a dead letter now, whatever retries are left. The reason is stored."""
        return await self._end("reject", reason=reason, **limits)

    async def release(self, **limits: Unpack[TimeLimit]) -> Settled:
        """Return it as if it had not been received: ready at once, and no attempt is counted."""
        return await self._end("extend", lease_ms=0, **limits)

    async def extend(
        self,
        *,
        lease: timedelta | None = None,
        lease_ms: int | None = None,
        **limits: Unpack[TimeLimit],
    ) -> Settled:
        """Extend the lease to this time from now; one of the two is required."""
        wanted_ms = lease_of(lease, lease_ms)
        if wanted_ms == 0:
            return await self.release(**limits)
        return await self._keep("extend", lease_ms=wanted_ms, **limits)

    async def begin(
        self,
        *,
        lease: timedelta | None = None,
        lease_ms: int | None = None,
        **limits: Unpack[TimeLimit],
    ) -> Settled:
        """Count its attempt from now on, if it was received with `begin`, and extend the lease.

        Without an argument the lease becomes the topic's `lease_ms` from now.
        """
        wanted_ms = duration_ms("lease", lease, lease_ms)
        return await self._keep("begin", lease_ms=wanted_ms, **limits)

    async def _end(self, verb: Verb, **times: Unpack[SettleTimes]) -> Settled:
        """Make a call that ends the lease."""
        before = self.settled
        # Before the call: meanwhile a worker must not take the end of the lease for a loss.
        self.settled = True
        try:
            result = await self._settle(verb, **times)
        except BaseException:
            self.settled = before
            raise
        if result is Settled.GONE and not before:
            self.settled = False
            self._lose(verb)
        return result

    async def _keep(self, verb: Verb, **times: Unpack[SettleTimes]) -> Settled:
        """Make a call that extends the lease."""
        result = await self._settle(verb, **times)
        if result is Settled.GONE and not self.settled:
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

    async def _settle(self, verb: Verb, **times: Unpack[SettleTimes]) -> Settled:
        check_keywords(verb, times, SettleTimes)
        settler: AsyncSettler | None = self.batch.settler
        assert settler is not None, "a receive gives its messages a settler"
        (result,) = await settler.settle(verb, Share(self.batch, (0,), (self.row,)), **times)
        return result

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
                await self.nack(delay_ms=delay_ms, reason=reason_of(error))
        except ClientError as failure:
            # The error of the block matters more; the message returns when its lease ends.
            log.warning("%s: cannot return message %s: %s", self.topic, self.id, failure)
        return decided


def messages_of(batch: MessageBatch, settler: AsyncSettler) -> list[AsyncMessage]:
    """One message per row, in the broker's order."""
    batch.settler, batch.codec = settler, settler.codec
    return [AsyncMessage(batch, row) for row in range(batch.columns.n)]
