"""Every call of an embedded broker, as a coroutine; `driving` runs it for threads or a loop.

Names, arguments, results and exceptions are those of `Client`. Calls that are not made for every
message go to the handlers of the API (`carrying`), so each call has one implementation.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar, Unpack

from delaylog.broker.calls.shapes import ReceiveCall, parse_receive
from delaylog.broker.embedded import hot
from delaylog.broker.embedded.carrying import carry
from delaylog.broker.embedded.node import EmbeddedNode
from delaylog.broker.embedded.steps import Step
from delaylog.client.bulk import SendAnswer, Texts, encode_send
from delaylog.client.calls import Call, control, messages, topics
from delaylog.client.calls.places import Places
from delaylog.client.checks import check_texts
from delaylog.client.due import due_members
from delaylog.client.errors import IdInUse
from delaylog.client.message import MessageBatch
from delaylog.client.models import (
    Changed,
    GroupInfo,
    MessageInfo,
    NewMessage,
    SendKeywords,
    Sent,
    Settled,
    Stats,
    TopicInfo,
    TopicSettings,
)
from delaylog.client.sending.row import Row, check_several, make_row, row_of

T = TypeVar("T")
Steps: TypeAlias = Coroutine[Step, None, T]
Settings: TypeAlias = TopicSettings | Mapping[str, Any] | None
Page: TypeAlias = tuple[list[MessageInfo], str | None]
"""Messages, and where the next page begins; None on the last one."""


class EmbeddedCalls:
    """Calls on one node, in one namespace."""

    def __init__(self, node: EmbeddedNode, namespace: str) -> None:
        self.node = node
        self.namespace = namespace
        self.places = Places(namespace)
        nothing: dict[str, Any] = {}
        self._last_receive = (nothing, parse_receive(nothing, node.engine.limits))
        """The members of one, and what they mean."""

    # ------------------------------------------------------------------ send

    def send(
        self, topic: str, body: bytes | str, *, wait: bool = True, **fields: Unpack[SendKeywords]
    ) -> Steps[Sent]:
        """One message. What can be judged without the broker is judged at once."""
        return self._send_one(
            hot.checked_key(self.namespace, topic), make_row(body, **fields), wait
        )

    async def _send_one(self, key: tuple[str, str], row: Row, wait: bool) -> Sent:
        sent = (await hot.send_rows(self.node, key, [row], wait=wait))[0]
        if sent.result == "rejected":
            raise IdInUse(sent)
        return sent

    def send_many(
        self,
        topic: str,
        messages: Iterable[NewMessage | bytes | str],
        *,
        wait: bool = True,
        **defaults: Unpack[SendKeywords],
    ) -> Steps[list[Sent]]:
        """Many messages: all of them, or none where one is wrong."""
        key = hot.checked_key(self.namespace, topic)
        check_several(messages, "send_many")
        rows = [row_of(message, defaults) for message in messages]
        return hot.send_rows(self.node, key, rows, wait=wait)

    def send_columns(
        self, topic: str, bodies: Texts, *, wait: bool = True, **columns: Any
    ) -> Steps[SendAnswer]:
        """Many messages as columns, one frame."""
        if columns.get("deliver_at_ms") is None and columns.get("delay_ms") is None:
            columns["delay_ms"] = 0
        wire = encode_send(bodies, **columns)
        return hot.send_wire(self.node, hot.checked_key(self.namespace, topic), wire, wait=wait)

    # ------------------------------------------------------------------ receive and settle

    async def receive(
        self,
        topic: str,
        *,
        max: int,
        wait_ms: int,
        lease_ms: int | None,
        group: str | None,
        tags: Sequence[str],
        tags_mode: str,
        ids: Sequence[str],
    ) -> MessageBatch:
        """Lease what is ready, or wait for it."""
        members = {
            "max": max,
            "wait_ms": wait_ms,
            "lease_ms": lease_ms,
            "group": group,
            "tags": list(check_texts("tags", tags)) or None,
            "tags_mode": tags_mode,
            "ids": list(check_texts("ids", ids)) or None,
        }
        key = hot.checked_key(self.namespace, topic)
        columns = await hot.receive_batch(self.node, key, self._parsed(members))
        return MessageBatch(columns, topic, group)

    def _parsed(self, members: dict[str, Any]) -> ReceiveCall:
        """What a receive asks for: most ask for the same as the one before. Raises Problem."""
        last, call = self._last_receive
        # Types first: True is 1 to a comparison, and nothing to ask for.
        if list(map(type, members.values())) != list(map(type, last.values())) or members != last:
            call = parse_receive(members, self.node.engine.limits)
            self._last_receive = (members, call)
        return call

    def settle(
        self,
        verb: hot.Verb,
        messages: hot.ToSettle,
        *,
        delay_ms: int | None = None,
        lease_ms: int | None = None,
        wait: bool = True,
    ) -> Steps[list[Settled]]:
        """ack, nack or extend."""
        parts, count = hot.parts_of(self.namespace, messages)
        return hot.settle(
            self.node, verb, parts, count, delay_ms=delay_ms, lease_ms=lease_ms, wait=wait
        )

    async def settle_ids(
        self, topic: str, verb: str, ids: Sequence[str], members: Mapping[str, Any]
    ) -> list[Settled]:
        """The same by bare ids, whoever has the messages."""
        _check_ids(ids)
        call = messages.settle_forced(self.places, topic, verb, ids, **members)
        return [Settled(word) for word in await self.carry(call)]

    async def flush(self) -> None:
        """Everything that was appended so far is as safe as the dial says."""
        await self.node.durable(self.node.engine.state.position)

    # ------------------------------------------------------------------ look and change

    def carry(self, call: Call[T]) -> Steps[T]:
        """Any call of the API."""
        return carry(self.node, call)

    async def peek(self, topic: str, members: Mapping[str, Any]) -> list[MessageInfo]:
        """What is ready, without leasing it."""
        found = await self.carry(messages.peek(self.places, topic, **members))
        return [MessageInfo.of(each) for each in found]

    async def get(self, topic: str, id: str, *, group: str | None, life: bool) -> MessageInfo:
        """One message with its state."""
        call = control.get(self.places, topic, id, life=life, group=group)
        answer = await self.carry(call)
        return MessageInfo.of(answer)

    async def page(self, topic: str, kind: str, filter: Mapping[str, Any]) -> Page:
        """A page of `messages`, or of those that are `dead`."""
        states = filter.get("state")
        if states is not None and not isinstance(states, str):
            states = ",".join(states)
        wanted = {**filter, "state": states}
        answer = await self.carry(control.page(self.places, topic, kind, **wanted))
        return [MessageInfo.of(each) for each in answer["messages"]], answer["cursor"]

    async def cancel(self, topic: str, id: str, *, force: bool) -> Changed:
        """End one before its delivery."""
        answer = await self.carry(control.cancel(self.places, topic, id, force=force))
        return Changed.of(answer)

    def reschedule(
        self,
        topic: str,
        id: str,
        deliver_at_ms: int | None,
        delay_ms: int | None,
        at: datetime | None,
        delay: timedelta | None,
        priority: int | None,
    ) -> Steps[Changed]:
        """Another time or priority for one."""
        due = due_members(deliver_at_ms, delay_ms, at, delay)
        if not due and priority is None:
            raise ValueError("give a time, or a priority")
        return self._changed(control.reschedule(self.places, topic, id, **due, priority=priority))

    async def _changed(self, call: Call[dict[str, Any]]) -> Changed:
        answer = await self.carry(call)
        return Changed.of(answer)

    def replay(
        self,
        topic: str,
        ids: Sequence[str],
        deliver_at_ms: int | None,
        delay_ms: int | None,
        at: datetime | None,
        delay: timedelta | None,
    ) -> Steps[list[Changed]]:
        """Let dead ones live again, with a result each."""
        _check_ids(ids)
        due = due_members(deliver_at_ms, delay_ms, at, delay)
        return self._all_changed(control.change_many(self.places, topic, "replay", ids, **due))

    async def _all_changed(self, call: Call[list[dict[str, Any]]]) -> list[Changed]:
        return [Changed.of(each) for each in await self.carry(call)]

    # ------------------------------------------------------------------ topics and groups

    async def topics(self) -> list[TopicInfo]:
        """The topics of the namespace."""
        found: list[TopicInfo] = []
        cursor = None
        while True:
            answer = await self.carry(topics.topics(self.places, cursor=cursor))
            found += [TopicInfo.of(each) for each in answer["topics"]]
            cursor = answer["cursor"]
            if cursor is None:
                return found

    async def get_topic(self, topic: str) -> TopicInfo:
        """A topic."""
        answer = await self.carry(topics.get_topic(self.places, topic))
        return TopicInfo.of(answer)

    async def put_topic(self, topic: str, settings: Settings) -> TopicInfo:
        """Make a topic, or replace its settings."""
        members = settings.members() if isinstance(settings, TopicSettings) else settings or {}
        answer = await self.carry(topics.put_topic(self.places, topic, members))
        return TopicInfo.of(answer)

    async def drop_topic(self, topic: str, *, force: bool) -> None:
        """Drop a topic."""
        await self.carry(topics.drop_topic(self.places, topic, force=force))

    async def stats(self, topic: str, *, group: str | None, delay_buckets: bool) -> Stats:
        """Counts by state."""
        call = topics.stats(self.places, topic, group=group, delay_buckets=delay_buckets)
        answer = await self.carry(call)
        return Stats.of(answer)

    async def purge(self, topic: str, *, group: str | None, force: bool, erase: bool) -> int:
        """End what waits or is ready; how many."""
        call = topics.purge(self.places, topic, group=group, force=force, erase=erase)
        answer = await self.carry(call)
        return int(answer["purged"])

    async def groups(self, topic: str) -> list[GroupInfo]:
        """A topic's groups."""
        answer = await self.carry(topics.groups(self.places, topic))
        return [GroupInfo.of(each) for each in answer["groups"]]

    async def put_group(self, topic: str, group: str, *, ephemeral: bool) -> GroupInfo:
        """Make a group."""
        call = topics.put_group(self.places, topic, group, ephemeral=ephemeral)
        answer = await self.carry(call)
        return GroupInfo.of(answer)


def _check_ids(ids: Sequence[str]) -> None:
    """TypeError for one text, whose letters are no ids."""
    if isinstance(ids, str):
        raise TypeError(f"ids are a list of texts, not one: use [{ids!r}]")
