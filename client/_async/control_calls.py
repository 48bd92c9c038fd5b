"""Calls of AsyncClient about messages by their ids, and looks at messages.

The one rule: with several shards an id is asked for where it may be: the shard that is named, else
its home first and then the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from delaylog.client._async.link import AsyncLink
from delaylog.client.calls import control
from delaylog.client.calls import messages as message_calls
from delaylog.client.calls.call import Call
from delaylog.client.calls.places import Places
from delaylog.client.errors import ClientError, NotFound, ReplayFailed, SettleFailed
from delaylog.client.keywords import (
    DueKeywords,
    ListKeywords,
    PeekKeywords,
    SettleKeywords,
    list_query,
)
from delaylog.client.models import Changed, MessageInfo, Settled
from delaylog.client.shards.by_ids import ByIds
from delaylog.client.shards.merging import async_merged
from delaylog.client.shards.over_shards import list_failed
from delaylog.client.shards.receiving import Wanted, bearable, verdict
from delaylog.client.shards.settling import Verb
from delaylog.client.shards.sharding import Topology
from delaylog.client.wire.checks import check_keywords
from delaylog.client.wire.due import due_members

R = TypeVar("R")
T = TypeVar("T")
PAGE = 500


class AsyncControlCalls:
    """The calls; the class that inherits them knows the shards."""

    _links: Sequence[AsyncLink]
    _places: Places
    _topology: Topology

    async def peek(self, topic: str, **asked: Unpack[PeekKeywords]) -> list[MessageInfo]:
        """Up to `max` messages (1) that are ready now, without leasing them; of several shards one
        after the other.

        One that cannot be reached is passed over, and NotReached is raised when none can.
        """
        wanted, how_much = Wanted.split(topic, asked, "peek")
        most = how_much["max"]
        found: list[MessageInfo] = []
        errors: list[ClientError] = []
        for at in self._topology.order():
            link = self._links[at]
            call = message_calls.peek(
                self._places, topic, max=most - len(found), **wanted.members()
            )
            try:
                shapes = await link.carry(call)
            except ClientError as error:
                errors.append(error)
                continue
            found += [MessageInfo.of(each, link.name) for each in shapes]
            if len(found) >= most:
                return found
        wrong = verdict(errors, len(self._links))
        if wrong is not None:
            raise wrong
        return found

    async def get(
        self,
        topic: str,
        id: str,
        *,
        group: str | None = None,
        life: bool = False,
        shard: str | None = None,
    ) -> MessageInfo:
        """One message as a group sees it; `life` adds what happened to it. NotFound."""
        call = control.get(self._places, topic, id, life=life, group=group)
        return await self._where_it_is(id, shard, call, MessageInfo.of)

    async def cancel(
        self, topic: str, id: str, *, force: bool = False, shard: str | None = None
    ) -> Changed:
        """End one before delivery; `force` also under lease, and dead. NotFound, TooLate."""
        call = control.cancel(self._places, topic, id, force=force)
        return await self._where_it_is(id, shard, call, lambda shape, _: Changed.of(shape))

    async def reschedule(
        self,
        topic: str,
        id: str,
        *,
        priority: int | None = None,
        shard: str | None = None,
        **due: Unpack[DueKeywords],
    ) -> Changed:
        """Another time (0 = now), or another priority, for one that waits or is ready.

        NotFound, TooLate.
        """
        check_keywords("reschedule", due, DueKeywords)
        members = due_members(**due)
        if not members and priority is None:
            raise ValueError("give a time, or a priority")
        call = control.reschedule(self._places, topic, id, priority=priority, **members)
        return await self._where_it_is(id, shard, call, lambda shape, _: Changed.of(shape))

    async def settle_ids(
        self,
        topic: str,
        verb: Verb,
        ids: Sequence[str],
        *,
        shard: str | None = None,
        **members: Unpack[SettleKeywords],
    ) -> list[Settled]:
        """`ack`, `nack` or `extend` by bare ids, whoever has the messages.

        `unknown` is an id that no shard knows. Of several shards: SettleFailed where one that fails
        may have some of them.
        """
        check_keywords("settle_ids", members, SettleKeywords)
        found = ByIds(len(ids), Settled.UNKNOWN, SettleFailed)
        return await self._look_for(
            ids,
            shard,
            found,
            lambda named: message_calls.settle_forced(self._places, topic, verb, named, **members),
            Settled,
        )

    async def replay(
        self,
        topic: str,
        ids: Sequence[str],
        *,
        shard: str | None = None,
        **due: Unpack[DueKeywords],
    ) -> list[Changed]:
        """Let dead messages live again, now or at a time: `done`, `too_late` or `unknown` each.

        Of several shards: ReplayFailed where one that fails may have some of them.
        """
        check_keywords("replay", due, DueKeywords)
        members = due_members(**due)
        found = ByIds(len(ids), Changed("unknown"), ReplayFailed)
        return await self._look_for(
            ids,
            shard,
            found,
            lambda named: control.change_many(self._places, topic, "replay", named, **members),
            Changed.of,
        )

    def messages(
        self,
        topic: str,
        *,
        state: str | Sequence[str] | None = None,
        shard: str | None = None,
        **filter: Unpack[ListKeywords],
    ) -> AsyncIterator[MessageInfo]:
        """The topic's messages in due order, page by page as they are read; see Lists in HTTP.md.

        `state` is one or some of waiting, ready, leased, acked, expired, dead, deleted. Of several
        shards one that is away ends the list by ShardsFailed: `shard=` lists the others.
        """
        states = state if state is None or isinstance(state, str) else ",".join(state)
        return self._listed(topic, "messages", shard, filter, {"state": states})

    def dead(
        self,
        topic: str,
        *,
        history: bool = True,
        shard: str | None = None,
        **filter: Unpack[ListKeywords],
    ) -> AsyncIterator[MessageInfo]:
        """Dead letters in due order, with how each died (`life`) unless `history` is False."""
        return self._listed(topic, "dead", shard, filter, {} if history else {"history": False})

    def _listed(
        self,
        topic: str,
        kind: str,
        shard: str | None,
        filter: ListKeywords,
        own: Mapping[str, str | bool | None],
    ) -> AsyncIterator[MessageInfo]:
        query = {**list_query(filter), **own}
        places = range(len(self._links)) if shard is None else [self._topology.at(shard)]
        several = len(places) > 1
        lists = [self._one_list(self._links[at], topic, kind, several, query) for at in places]
        return async_merged(lists) if several else lists[0]

    async def _one_list(
        self, link: AsyncLink, topic: str, kind: str, several: bool, query: dict[str, Any]
    ) -> AsyncIterator[MessageInfo]:
        cursor: str | None = None
        while True:
            asked = {"limit": PAGE} | query | {"cursor": cursor}
            try:
                page = await link.carry(control.page(self._places, topic, kind, **asked))
            except NotFound:
                # Of several shards one need not have the topic.
                if not several:
                    raise
                return
            except ClientError as error:
                if not several or not bearable(error):
                    raise
                raise list_failed(kind, topic, link.name, error) from error
            for shape in page["messages"]:
                yield MessageInfo.of(shape, link.name)
            cursor = page["cursor"]
            if cursor is None:
                return

    async def _where_it_is(
        self,
        id: str,
        shard: str | None,
        call: Call[dict[str, Any]],
        read: Callable[[dict[str, Any], str], T],
    ) -> T:
        """The call where the message is: NotFound where no shard has it."""
        missing: NotFound | None = None
        for at in self._topology.of_id(id, shard):
            link = self._links[at]
            try:
                return read(await link.carry(call), link.name)
            except NotFound as error:
                missing = missing or error
        assert missing is not None, "there is a shard"
        raise missing

    async def _look_for(
        self,
        ids: Sequence[str],
        shard: str | None,
        found: ByIds[R],
        call: Callable[[list[str]], Call[list[Any]]],
        read: Callable[[Any], R],
    ) -> list[R]:
        for at, asked in self._topology.rounds(ids, shard):
            left = found.left(asked)
            if not left:
                continue
            try:
                answer = await self._links[at].carry(call([ids[place] for place in left]))
            except ClientError as error:
                found.failed(left, error)
            else:
                found.answered(left, map(read, answer))
        return found.results()
