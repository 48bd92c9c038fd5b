"""A QueuePort over PlainSyncClient: what the recipes need, one request a call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from delaylog.client.calls import messages as calls
from delaylog.client.message import Message, MessageBatch
from delaylog.client.models import (
    Changed,
    MessageInfo,
    NewMessage,
    Sent,
    Settled,
    Stats,
    TopicInfo,
    TopicSettings,
)
from delaylog.client.plain_sync_client import PlainSyncClient


class PlainPort:
    def __init__(self, url: str) -> None:
        self.plain = PlainSyncClient(url)

    def close(self) -> None:
        self.plain.close()

    def send_many(
        self, topic: str, messages: Iterable[NewMessage | bytes | str], **defaults: Any
    ) -> list[Sent]:
        shapes = []
        for each in messages:
            assert isinstance(each, NewMessage)
            fields = {n: getattr(each, n) for n in each.__dataclass_fields__}
            fields = {**defaults, **{n: v for n, v in fields.items() if v not in (None, ())}}
            shapes.append(fields)
        return self.plain.send_many(topic, shapes)

    def receive(
        self,
        topic: str,
        *,
        max: int = 1,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        ids: Sequence[str] = (),
    ) -> list[Message]:
        call = calls.receive_batch(
            self.plain._places, topic, max=max, wait_ms=wait_ms, lease_ms=lease_ms, ids=ids
        )
        return MessageBatch(self.plain._carry(call), topic).messages()

    def _settle(
        self, messages: Message | Iterable[Message], verb: str, **members: Any
    ) -> list[Settled]:
        many = [messages] if isinstance(messages, Message) else list(messages)
        by_topic = defaultdict(list)
        for at, each in enumerate(many):
            by_topic[each.topic].append(at)
        out = [Settled.GONE] * len(many)
        for topic, places in by_topic.items():
            receipts = [many[at].receipt for at in places]
            call = calls.settle(self.plain._places, topic, verb, receipts, **members)
            for at, word in zip(places, self.plain._carry(call), strict=True):
                out[at] = Settled(word)
        return out

    def ack(self, messages: Message | Iterable[Message]) -> list[Settled]:
        return self._settle(messages, "ack")

    def nack(
        self, messages: Message | Iterable[Message], *, delay_ms: int | None = None
    ) -> list[Settled]:
        return self._settle(messages, "nack", delay_ms=delay_ms)

    def extend(self, messages: Message | Iterable[Message], *, lease_ms: int) -> list[Settled]:
        return self._settle(messages, "extend", lease_ms=lease_ms)

    def settle_forced(
        self, topic: str, verb: str, ids: Sequence[str], *, lease_ms: int | None = None
    ) -> list[Settled]:
        return [
            Settled(w) for w in self.plain.settle_forced(topic, verb, ids, lease_ms=lease_ms)
        ]

    def peek(self, topic: str, *, max: int = 1) -> list[MessageInfo]:
        return [MessageInfo.of(each) for each in self.plain.peek(topic, max=max)]

    def get(self, topic: str, message_id: str) -> MessageInfo:
        return MessageInfo.of(self.plain.get(topic, message_id))

    def messages(self, topic: str, **filter: Any) -> Iterator[MessageInfo]:
        yield from self._pages(self.plain.page, topic, filter)

    def dead(self, topic: str, **filter: Any) -> Iterator[MessageInfo]:
        yield from self._pages(self.plain.dead, topic, filter)

    def _pages(self, page: Any, topic: str, filter: Mapping[str, Any]) -> Iterator[MessageInfo]:
        cursor = None
        while True:
            answer = page(topic, cursor=cursor, **filter)
            yield from (MessageInfo.of(each) for each in answer["messages"])
            cursor = answer["cursor"]
            if cursor is None:
                return

    def cancel(self, topic: str, message_id: str, *, force: bool = False) -> Changed:
        return Changed.of(self.plain.cancel(topic, message_id, force=force))

    def reschedule(
        self,
        topic: str,
        message_id: str,
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> Changed:
        return Changed.of(
            self.plain.reschedule(
                topic, message_id, deliver_at_ms=deliver_at_ms, delay_ms=delay_ms
            )
        )

    def replay(
        self,
        topic: str,
        ids: Sequence[str],
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> list[Changed]:
        answer = self.plain.replay(topic, ids, deliver_at_ms=deliver_at_ms, delay_ms=delay_ms)
        return [Changed.of(each) for each in answer]

    def stats(self, topic: str) -> Stats:
        return Stats.of(self.plain.stats(topic))

    def purge(self, topic: str, *, force: bool = False) -> Any:
        return self.plain.purge(topic, force=force)

    def get_topic(self, topic: str) -> TopicInfo:
        return TopicInfo.of(self.plain.get_topic(topic))

    def put_topic(
        self, topic: str, settings: TopicSettings | Mapping[str, Any] | None = None
    ) -> TopicInfo:
        members = settings.members() if isinstance(settings, TopicSettings) else settings or {}
        return TopicInfo.of(self.plain.put_topic(topic, members))
