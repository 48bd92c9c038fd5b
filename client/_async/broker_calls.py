"""Calls of AsyncPlainClient about what is more than one message: topics, groups, jobs,
transactions, the broker's clock and its cluster.

They answer the API's JSON as it is. The one rule is that of the class they belong to: a call is
carried out once, or its failure is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from delaylog.client._async.carried import carried, carried_anywhere
from delaylog.client.calls import control
from delaylog.client.calls import topics as topic_calls
from delaylog.client.calls import transactions as transaction_calls
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
        status = await self._carry(topic_calls.cluster())
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
        return await self._carry(topic_calls.hand_over(to))

    async def change_members(
        self, action: str, nodes: Sequence[str], **contact: Any
    ) -> dict[str, Any]:
        """Add, promote, remove, replace or move nodes; who belongs to the cluster now.

        `contact`: name, peer, election_port, http, resp of a node to add or move.
        """
        await self.leading()
        return await self._carry(topic_calls.change_members(action, nodes, contact))

    clock = carried_anywhere(topic_calls.clock)

    # Jobs: the same for all messages that match

    begin_job = carried(control.begin_job)
    job = carried_anywhere(control.job)
    jobs = carried_anywhere(control.jobs)
    stop_job = carried_anywhere(control.stop_job)

    # Topics, groups, and what is done to a topic as a whole

    topics = carried(topic_calls.topics)
    get_topic = carried(topic_calls.get_topic)
    put_topic = carried(topic_calls.put_topic)
    drop_topic = carried(topic_calls.drop_topic)
    stats = carried(topic_calls.stats)
    forecast = carried(topic_calls.forecast)
    groups = carried(topic_calls.groups)
    put_group = carried(topic_calls.put_group)
    drop_group = carried(topic_calls.drop_group)
    purge = carried(topic_calls.purge)
    pause = carried(topic_calls.pause)
    resume = carried(topic_calls.resume)

    # Transactions

    begin = carried_anywhere(transaction_calls.begin)
    stage = carried(transaction_calls.stage)
    commit = carried_anywhere(transaction_calls.commit)
    abort = carried_anywhere(transaction_calls.abort)
    transaction = carried_anywhere(transaction_calls.get)
    transactions = carried_anywhere(transaction_calls.listed)
