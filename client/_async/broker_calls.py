"""Calls of AsyncPlainClient about what is more than one message: topics, groups, jobs,
transactions, the broker's clock and its cluster.

They answer the API's JSON as it is. The one rule is that of the class they belong to: a call is
carried out once, or its failure is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from delaylog.client.bulk import Numbers, Texts, encode_send
from delaylog.client.calls import control, topics, transactions
from delaylog.client.calls.call import Call
from delaylog.client.calls.places import Places

if TYPE_CHECKING:
    from delaylog.client._async.transport import AsyncTransport

T = TypeVar("T")


class AsyncBrokerCalls:
    """The calls; the class that inherits them knows the broker."""

    _places: Places
    _transport: AsyncTransport

    async def _carry(self, call: Call[T]) -> T:
        return await self._transport.carry(call)

    # The cluster and the clock

    async def cluster(self) -> dict[str, Any]:
        """What the node that is asked knows of its cluster. NotFound when it is in none."""
        status = await self._carry(topics.cluster())
        self._transport.route.learn(status)
        return status

    async def leading(self) -> dict[str, Any]:
        """The same from the leader, which knows more; from any node while there is none."""
        status = await self.cluster()
        leader = status["leader"]
        if leader is None or leader["node"] == status["node"]:
            return status
        self._transport.route.follow(leader["http"])
        return await self.cluster()

    async def hand_over(self, to: int | str | None = None) -> dict[str, Any]:
        """Have another node lead (None: the fittest); who does, and how long it paused."""
        await self.leading()
        return await self._carry(topics.hand_over(to))

    async def change_members(
        self, action: str, nodes: Sequence[str], **contact: Any
    ) -> dict[str, Any]:
        """Add, promote, remove, replace or move nodes; who belongs to the cluster now.

        `contact`: name, peer, election_port, http, resp of a node to add or move.
        """
        await self.leading()
        return await self._carry(topics.change_members(action, nodes, contact))

    async def clock(self, *, accept: bool = False) -> dict[str, Any]:
        """The broker's clock; `accept` = wall time was set back and is right, go back to it."""
        return await self._carry(topics.clock(accept=accept))

    # Jobs: the same for all messages that match

    async def begin_job(
        self, topic: str, action: str, filter: Mapping[str, Any], **members: Any
    ) -> dict[str, Any]:
        """Cancel, reschedule or replay whatever matches `filter`; the job that does it.

        `members`: rate (messages a second), deliver_at_ms or delay_ms, force.
        """
        return await self._carry(control.begin_job(self._places, topic, action, filter, **members))

    async def job(self, job: str) -> dict[str, Any]:
        """How far a job is. NotFound when it is not known (any more)."""
        return await self._carry(control.job(job))

    async def jobs(self) -> dict[str, Any]:
        """All jobs, the newest first."""
        return await self._carry(control.jobs())

    async def stop_job(self, job: str) -> dict[str, Any]:
        """Stop a job; what it did stays done."""
        return await self._carry(control.stop_job(job))

    # Topics

    async def topics(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        prefix: str | None = None,
    ) -> dict[str, Any]:
        """A page of the topics of the namespace, by name; `cursor` goes on behind a page."""
        call = topics.topics(self._places, limit=limit, cursor=cursor, prefix=prefix)
        return await self._carry(call)

    async def get_topic(self, topic: str) -> dict[str, Any]:
        """A topic, its settings and its counts."""
        return await self._carry(topics.get_topic(self._places, topic))

    async def put_topic(self, topic: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Make a topic, or change its settings."""
        return await self._carry(topics.put_topic(self._places, topic, settings))

    async def drop_topic(self, topic: str, *, force: bool = False) -> dict[str, Any]:
        """Delete a topic: an empty one, or by force any."""
        return await self._carry(topics.drop_topic(self._places, topic, force=force))

    async def stats(
        self, topic: str, *, group: str | None = None, delay_buckets: bool = True
    ) -> dict[str, Any]:
        """Counts per state as a group sees them, rates, the oldest due time."""
        return await self._carry(
            topics.stats(self._places, topic, group=group, delay_buckets=delay_buckets)
        )

    async def forecast(
        self,
        topic: str,
        *,
        minutes: int | None = None,
        hours: int | None = None,
        group: str | None = None,
    ) -> dict[str, Any]:
        """Messages to come, per minute and per hour."""
        return await self._carry(
            topics.forecast(self._places, topic, minutes=minutes, hours=hours, group=group)
        )

    # Groups, and what is done to a topic as a whole

    async def groups(self, topic: str) -> dict[str, Any]:
        """The topic's groups, each with its counts."""
        return await self._carry(topics.groups(self._places, topic))

    async def put_group(self, topic: str, group: str, *, ephemeral: bool = False) -> dict[str, Any]:
        """Make a group, which sees what is sent from now on, or change how it ends."""
        return await self._carry(topics.put_group(self._places, topic, group, ephemeral=ephemeral))

    async def drop_group(self, topic: str, group: str) -> dict[str, Any]:
        """Drop a group; what waited for it alone has ended."""
        return await self._carry(topics.drop_group(self._places, topic, group))

    async def purge(
        self, topic: str, *, group: str | None = None, force: bool = False, erase: bool = False
    ) -> dict[str, Any]:
        """End what waits or is ready, in one group or in all; `force`: what is leased too.

        `erase`, with `force` and no group: every byte of the messages leaves the data folders;
        `erasing` of the topic says for how long that goes on.
        """
        call = topics.purge(self._places, topic, group=group, force=force, erase=erase)
        return await self._carry(call)

    async def pause(self, topic: str) -> dict[str, Any]:
        """Hand nothing out; sends and settles go on."""
        return await self._carry(topics.pause(self._places, topic))

    async def resume(self, topic: str) -> dict[str, Any]:
        """Hand out again."""
        return await self._carry(topics.resume(self._places, topic))

    # Transactions

    async def begin(
        self, transaction: str | None = None, *, ttl_ms: int | None = None
    ) -> dict[str, Any]:
        """Begin a transaction, or give an open one more time: {transaction, state, …}."""
        return await self._carry(transactions.begin(transaction, ttl_ms=ttl_ms))

    async def stage(
        self,
        transaction: str,
        topic: str,
        bodies: Texts,
        *,
        part: int = 0,
        attempt: int = 0,
        number: int = 0,
        staged_by: str | None = None,
        deliver_at_ms: Numbers | None = None,
        delay_ms: Numbers | None = None,
        **columns: Any,
    ) -> dict[str, Any]:
        """Stage columns (see `encode_send`); the same again is `already`. A delay counts from the
        commit.
        """
        wire = encode_send(bodies, deliver_at_ms=deliver_at_ms, delay_ms=delay_ms, **columns)
        call = transactions.stage(
            transaction,
            wire,
            namespace=self._places.namespace,
            topic=topic,
            part=part,
            attempt=attempt,
            number=number,
            producer=staged_by,
        )
        return await self._carry(call)

    async def commit(
        self, transaction: str, winners: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Send what these have staged: {part, attempt, rows} each, and `producer` where several."""
        return await self._carry(transactions.commit(transaction, winners))

    async def abort(self, transaction: str) -> dict[str, Any]:
        """Drop all that was staged."""
        return await self._carry(transactions.abort(transaction))

    async def transaction(self, transaction: str) -> dict[str, Any]:
        """How a transaction stands."""
        return await self._carry(transactions.get(transaction))

    async def transactions(self, limit: int | None = None) -> dict[str, Any]:
        """Open ones, those on their way, the newest that ended."""
        return await self._carry(transactions.listed(limit))
