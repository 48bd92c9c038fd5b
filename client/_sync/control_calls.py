"""The calls of Client that look up, list and change messages by id.

With several shards, the named shard is asked; without a name the home of the id is asked first,
then the other shards.

Made from client/_async/control_calls.py by `make twins`: change that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, Unpack

from delaylog.client._sync.link import Link
from delaylog.client.calls import control
from delaylog.client.calls import messages as message_calls
from delaylog.client.calls.call import Call, Places, request
from delaylog.client.errors import ClientError, NotFound, ReplayFailed, SettleFailed
from delaylog.client.keywords import (
    ChangeKeywords,
    DeadKeywords,
    ListKeywords,
    PeekKeywords,
    SettleKeywords,
    TimeLimit,
)
from delaylog.client.models import Changed, MessageInfo, Settled, State
from delaylog.client.shards.answers import ByIds, list_failed, merged
from delaylog.client.shards.receives import Wanted, is_shard_failure, verdict
from delaylog.client.shards.settlements import Verb
from delaylog.client.shards.sharding import Topology
from delaylog.client.wire.checks import check_keywords
from delaylog.client.wire.times import due_members, list_query, split_limit

R = TypeVar("R")
T = TypeVar("T")
PAGE = 500


class ControlCalls:
    """The calls, as a mixin; the inheriting class provides the shards."""

    _links: Sequence[Link]
    _places: Places
    _topology: Topology

    def peek(self, topic: str, **asked: Unpack[PeekKeywords]) -> list[MessageInfo]:
        """Return up to `max` ready messages (1) without leasing them, shard by shard.

        Unreachable shards are skipped; NotReached is raised if no shard can be reached.
        """
        wanted, how_much = Wanted.split(topic, asked, "peek")
        most = how_much["max"]
        found: list[MessageInfo] = []
        errors: list[ClientError] = []
        for at in self._topology.order():
            link = self._links[at]
            call = message_calls.peek(
                self._places,
                topic,
                max=most - len(found),
                limit_s=how_much["limit_s"],
                **wanted.members(),
            )
            try:
                # One shard alone is waited for.
                at_once = len(self._links) > 1
                shapes = link.carry(replace(call, at_once=at_once))
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

    def get(
        self,
        topic: str,
        id: str,
        *,
        group: str | None = None,
        life: bool = False,
        shard: str | None = None,
        **limits: Unpack[TimeLimit],
    ) -> MessageInfo:
        """Return a message as one group sees it; `life` adds its history. Raises NotFound."""
        call = control.get(self._places, topic, id, life=life, group=group, **limits)
        return self._where_it_is(id, shard, call, MessageInfo.of)

    def cancel(
        self,
        topic: str,
        id: str,
        *,
        force: bool = False,
        untried: bool = False,
        shard: str | None = None,
        **limits: Unpack[TimeLimit],
    ) -> Changed:
        """Cancel an undelivered message; `force`: also a leased or dead one.

        `untried`: only if no attempt at it has begun. Raises NotFound or TooLate.
        """
        call = control.cancel(self._places, topic, id, force=force, untried=untried, **limits)
        return self._where_it_is(id, shard, call, lambda shape, _: Changed.of(shape))

    def reschedule(
        self,
        topic: str,
        id: str,
        *,
        priority: int | None = None,
        untried: bool = False,
        shard: str | None = None,
        **due: Unpack[ChangeKeywords],
    ) -> Changed:
        """Change the due time (0 = now) or the priority of a waiting or ready message.

        `untried`: only if no attempt at it has begun. Raises NotFound or TooLate.
        """
        check_keywords("reschedule", due, ChangeKeywords)
        limit_s, times = split_limit(due)
        members: dict[str, Any] = due_members(**times)
        if not members and priority is None:
            raise ValueError("give a time, or a priority")
        members["untried"] = untried
        call = request(
            "reschedule", self._places, topic, id, priority=priority, limit_s=limit_s, **members
        )
        return self._where_it_is(id, shard, call, lambda shape, _: Changed.of(shape))

    def settle_ids(
        self,
        topic: str,
        verb: Verb,
        ids: Sequence[str],
        *,
        shard: str | None = None,
        **members: Unpack[SettleKeywords],
    ) -> list[Settled]:
        """`ack`, `nack` or `extend` messages by id, no matter which consumer holds their lease.

        The result is `unknown` for an id that no shard has. With several shards SettleFailed is
        raised if a shard that failed may have some of the ids.
        """
        check_keywords("settle_ids", members, SettleKeywords)
        found = ByIds(len(ids), Settled.UNKNOWN, SettleFailed)
        return self._look_for(
            ids,
            shard,
            found,
            lambda named: message_calls.settle_forced(self._places, topic, verb, named, **members),
            Settled,
        )

    def replay(
        self,
        topic: str,
        ids: Sequence[str],
        *,
        shard: str | None = None,
        **due: Unpack[ChangeKeywords],
    ) -> list[Changed]:
        """Replay dead messages, now or at a time. Per id: `done`, `too_late` or `unknown`.

        With several shards ReplayFailed is raised if a shard that failed may have some of the ids.
        """
        check_keywords("replay", due, ChangeKeywords)
        limit_s, times = split_limit(due)
        members: dict[str, int] = due_members(**times)
        found = ByIds(len(ids), Changed("unknown"), ReplayFailed)
        return self._look_for(
            ids,
            shard,
            found,
            lambda named: control.change_many(
                self._places, topic, "replay", named, limit_s=limit_s, **members
            ),
            Changed.of,
        )

    def browse(
        self,
        topic: str,
        *,
        state: State | Literal["all"] | Sequence[State] | None = None,
        shard: str | None = None,
        **filter: Unpack[ListKeywords],
    ) -> Iterator[MessageInfo]:
        """Look at the topic's messages, in due order; pages are fetched as they are needed.

        `state`: one or more of waiting, ready, leased, acked, expired, dead, cancelled, replaced;
        or all. `due_from` and `due_to` (exclusive) are datetimes, `due_from_ms` and `due_to_ms`
        Unix milliseconds. See Lists in HTTP.md for the other filters. If one of several shards is
        unreachable, the list ends with ShardsFailed; `shard=` lists a single shard.
        """
        states = state if state is None or isinstance(state, str) else ",".join(state)
        return self._listed(topic, "messages", shard, filter, {"state": states})

    def dead(
        self,
        topic: str,
        *,
        history: bool = True,
        shard: str | None = None,
        **filter: Unpack[DeadKeywords],
    ) -> Iterator[MessageInfo]:
        """Iterate over the dead letters in due order; `history` adds the `life` of each.

        `cause`, `reason` and `reason_prefix` compare with the last failed attempt.
        """
        return self._listed(topic, "dead", shard, filter, {} if history else {"history": False})

    def _listed(
        self,
        topic: str,
        kind: str,
        shard: str | None,
        filter: ListKeywords,
        own: Mapping[str, str | bool | None],
    ) -> Iterator[MessageInfo]:
        keywords = DeadKeywords if kind == "dead" else ListKeywords
        query = {**list_query(filter, keywords), **own}
        places = range(len(self._links)) if shard is None else [self._topology.at(shard)]
        several = len(places) > 1
        lists = [self._one_list(self._links[at], topic, kind, several, query) for at in places]
        return merged(lists) if several else lists[0]

    def _one_list(
        self, link: Link, topic: str, kind: str, several: bool, query: dict[str, Any]
    ) -> Iterator[MessageInfo]:
        cursor: str | None = None
        while True:
            asked = {"limit": PAGE} | query | {"cursor": cursor}
            try:
                page = link.carry(control.page(self._places, topic, kind, **asked))
            except NotFound:
                # With several shards, some may not have the topic.
                if not several:
                    raise
                return
            except ClientError as error:
                if not several or not is_shard_failure(error):
                    raise
                raise list_failed(kind, topic, link.name, error) from error
            for shape in page["messages"]:
                yield MessageInfo.of(shape, link.name)
            cursor = page["cursor"]
            if cursor is None:
                return

    def _where_it_is(
        self,
        id: str,
        shard: str | None,
        call: Call[dict[str, Any]],
        read: Callable[[dict[str, Any], str], T],
    ) -> T:
        """Carry out the call on the shard that has the message. NotFound if none has it."""
        missing: NotFound | None = None
        for at in self._topology.of_id(id, shard):
            link = self._links[at]
            try:
                return read(link.carry(call), link.name)
            except NotFound as error:
                missing = missing or error
        assert missing is not None, "there is a shard"
        raise missing

    def _look_for(
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
                answer = self._links[at].carry(call([ids[place] for place in left]))
            except ClientError as error:
                found.failed(left, error)
            else:
                found.answered(left, map(read, answer))
        return found.results()
