"""What a worker needs of a shard: receive, and the four ways in which a message goes back.

The one rule: one port is one shard, so that none waits for another. A worker knows its client by
these Protocols only; the clients and the embedded brokers say how many ports they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from delaylog.client.models import Settled
from delaylog.client.workers.settling import Verb

if TYPE_CHECKING:
    from delaylog.client.message import Message


class AsyncPort(Protocol):
    """One shard, as asked for one consumer's topic, group and tags.

    Several calls may be under way at once.
    """

    @property
    def name(self) -> str:
        """For logs."""

    async def receive(self, *, max: int, wait_ms: int) -> Sequence[Message]:
        """Lease up to `max` ready messages for the consumer's `lease_ms`, all under one lease."""

    async def ack(self, messages: Sequence[Message]) -> Sequence[Settled]:
        """End them, with a result each."""

    async def nack(self, messages: Sequence[Message], *, delay_ms: int | None) -> Sequence[Settled]:
        """Have them come again after a while, None = the topic's backoff."""

    async def extend(self, messages: Sequence[Message], *, lease_ms: int) -> Sequence[Settled]:
        """Hold them so long from now; 0 gives them back."""


async def async_settle(
    port: AsyncPort, verb: Verb, messages: Sequence[Message], delay_ms: int | None
) -> Sequence[Settled]:
    """The call that a verb stands for."""
    if verb is Verb.ACK:
        return await port.ack(messages)
    if verb is Verb.NACK:
        return await port.nack(messages, delay_ms=delay_ms)
    return await port.extend(messages, lease_ms=0)
