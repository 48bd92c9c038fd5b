"""AsyncClient: the broker's native HTTP API for asyncio programs, one method a call.

The one rule: a call is carried out once, or its failure is shown, since only the caller knows
whether a repeat is safe (a send with a key, or a producer and sequence, is, a plain one is not).
How a call finds the leader of a cluster, and what is repeated meanwhile, is said in `exchanges`.
Batching and consumer loops belong in a layer above.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from delaylog.client.answers import (
    AnswerLost,
    ApiError,
    ClientError,
    Message,
    NotReached,
    Received,
    Sent,
    message_of,
    with_body,
)
from delaylog.client.bulk import (
    BULK_TYPE,
    BulkError,
    ChangeAnswer,
    Numbers,
    ReceivedBatch,
    SendAnswer,
    SettleAnswer,
    Texts,
    decode_changed,
    decode_received,
    decode_send_answer,
    decode_settled,
    encode_change,
    encode_send,
    encode_settle,
)
from delaylog.client.exchanges import CALL_TIMEOUT_S, FAILOVER_S, JSON_TYPE, Exchanges
from delaylog.client.leader_route import LeaderRoute
from delaylog.client.topic_calls import TopicCalls, segment, with_query

__all__ = [
    "AnswerLost",
    "ApiError",
    "AsyncClient",
    "ClientError",
    "Message",
    "NotReached",
    "Received",
    "Sent",
]

Answer = TypeVar("Answer")


class AsyncClient(TopicCalls):
    """One broker at `base_url`, one namespace. Use as `async with AsyncClient(url) as client:`.

    `members` are other nodes of its cluster; those that are not named it asks a named one for.
    """

    def __init__(
        self,
        base_url: str,
        *,
        namespace: str = "default",
        token: str | None = None,
        call_timeout_s: float = CALL_TIMEOUT_S,
        connections_max: int = 100,
        members: Sequence[str] = (),
        failover_s: float = FAILOVER_S,
    ) -> None:
        self._route = LeaderRoute(base_url, members)
        self._root = base_url.rstrip("/") + "/v1"
        self._topics = f"{self._root}/ns/{segment(namespace)}/topics"
        self._exchanges = Exchanges(
            self._route,
            f"{self._root}/cluster",
            token=token,
            call_timeout_s=call_timeout_s,
            connections_max=connections_max,
            failover_s=failover_s,
        )

    async def __aenter__(self) -> Self:
        self._exchanges.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Drop the connections. Calls under way end with AnswerLost."""
        await self._exchanges.close()

    # Sending

    async def send(
        self,
        topic: str,
        body: bytes | str,
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        idempotency_key: str | None = None,
        **members: Any,
    ) -> Sent:
        """Send one message; `members` are the optional ones of the API (id, key, tags, …)."""
        shape = with_body(dict(members), body)
        if deliver_at_ms is not None:
            shape["deliver_at_ms"] = deliver_at_ms
        if delay_ms is not None:
            shape["delay_ms"] = delay_ms
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        url = self._of(topic, "messages")
        answer = await self._json(
            "POST", url, shape, headers, repeatable=idempotency_key is not None
        )
        return Sent(**_picked(answer))

    async def send_many(self, topic: str, messages: Sequence[Mapping[str, Any]]) -> list[Sent]:
        """Send an array of JSON shapes, judged whole for syntax and per item for merging."""
        shapes = []
        for each in messages:
            rest = {name: value for name, value in each.items() if name != "body"}
            shapes.append(with_body(rest, each.get("body", b"")))
        answer = await self._json("POST", self._of(topic, "messages"), shapes)
        return [Sent(**_picked(each)) for each in answer["messages"]]

    async def send_bulk(
        self,
        topic: str,
        bodies: Texts,
        *,
        deliver_at_ms: Numbers | None = None,
        delay_ms: Numbers | None = None,
        **columns: Any,
    ) -> SendAnswer:
        """Send many messages as columns; see `encode_send` for the optional ones.

        With `producer` and `sequence` the call may be repeated after AnswerLost: the broker then
        answers what it answered first and adds nothing.
        """
        wire = encode_send(bodies, deliver_at_ms=deliver_at_ms, delay_ms=delay_ms, **columns)
        repeatable = columns.get("producer") is not None and columns.get("sequence") is not None
        url = self._of(topic, "messages")
        return _decoded(decode_send_answer, await self._bulk(url, wire, repeatable=repeatable))

    # Receiving and settling

    async def receive(
        self,
        topic: str,
        *,
        max: int = 1,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        **members: Any,
    ) -> Received:
        """Lease up to `max` ready messages, waiting up to `wait_ms` for the first."""
        shape = {"max": max, "wait_ms": wait_ms, **members}
        if lease_ms is not None:
            shape["lease_ms"] = lease_ms
        answer = await self._json("POST", self._of(topic, "receive"), shape, extra_s=wait_ms / 1000)
        return Received([message_of(each) for each in answer["messages"]], answer["now_ms"])

    async def receive_bulk(
        self,
        topic: str,
        *,
        max: int = 1000,
        wait_ms: int = 0,
        lease_ms: int | None = None,
        **members: Any,
    ) -> ReceivedBatch:
        """Lease up to `max` ready messages as columns, all under one lease."""
        shape = {"max": max, "wait_ms": wait_ms, **members}
        if lease_ms is not None:
            shape["lease_ms"] = lease_ms
        url = self._of(topic, "receive")
        body = json.dumps(shape).encode()
        wire = await self._exchanges.call(
            "POST", url, body, {"Content-Type": JSON_TYPE, "Accept": BULK_TYPE}, wait_ms / 1000
        )
        return _decoded(decode_received, wire)

    async def ack(self, topic: str, receipts: Sequence[str]) -> list[str]:
        """Settle for good. Per receipt: done, gone (the lease ended first) or unknown."""
        return await self._settle(topic, "ack", {"receipts": list(receipts)})

    async def nack(
        self, topic: str, receipts: Sequence[str], *, delay_ms: int | None = None
    ) -> list[str]:
        """Give back, to be delivered again after `delay_ms`, or the topic's backoff if absent."""
        shape: dict[str, Any] = {"receipts": list(receipts)}
        if delay_ms is not None:
            shape["delay_ms"] = delay_ms
        return await self._settle(topic, "nack", shape)

    async def extend(self, topic: str, receipts: Sequence[str], *, lease_ms: int) -> list[str]:
        """Hold the leases `lease_ms` from now; 0 gives the messages back."""
        return await self._settle(
            topic, "extend", {"receipts": list(receipts), "lease_ms": lease_ms}
        )

    async def ack_bulk(
        self,
        topic: str,
        lease: int,
        refs: Numbers | None = None,
        *,
        except_refs: Numbers | None = None,
    ) -> SettleAnswer:
        """Settle refs of a lease, or without refs all of it (but `except_refs`)."""
        return await self._settle_bulk(
            topic, "ack", encode_settle(lease, refs, except_refs=except_refs)
        )

    async def nack_bulk(
        self,
        topic: str,
        lease: int,
        refs: Numbers | None = None,
        *,
        except_refs: Numbers | None = None,
        delay_ms: int | None = None,
    ) -> SettleAnswer:
        """Give refs of a lease back, or without refs all of it (but `except_refs`)."""
        return await self._settle_bulk(
            topic, "nack", encode_settle(lease, refs, except_refs=except_refs, delay_ms=delay_ms)
        )

    async def extend_bulk(
        self, topic: str, lease: int, refs: Numbers | None = None, *, lease_ms: int
    ) -> SettleAnswer:
        """Hold refs of a lease, or all of it, `lease_ms` from now."""
        return await self._settle_bulk(
            topic, "extend", encode_settle(lease, refs, lease_ms=lease_ms)
        )

    # One message, many messages, topics

    async def get(
        self, topic: str, message_id: str, *, life: bool = False, group: str | None = None
    ) -> dict[str, Any]:
        """The message with its state as a group sees it; `life` adds its steps.

        ApiError 404 when it is not known.
        """
        url = with_query(
            self._of(topic, "messages", message_id), life="true" if life else None, group=group
        )
        return await self._json("GET", url)

    async def page(self, topic: str, **query: str | int | bool | None) -> dict[str, Any]:
        """A page of the topic's messages; pass its `cursor` for the next one until it is None."""
        return await self._json("GET", with_query(self._of(topic, "messages"), **query))

    async def cancel(self, topic: str, message_id: str, *, force: bool = False) -> dict[str, Any]:
        """Cancel before delivery. ApiError 409 `too_late` (with `state`), 404 `unknown`."""
        url = self._of(topic, "messages", message_id)
        return await self._json("DELETE", f"{url}?force=true" if force else url)

    async def reschedule(
        self,
        topic: str,
        message_id: str,
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        priority: int | None = None,
    ) -> dict[str, Any]:
        """Change when (0 = now) or how urgently it is delivered; fails as `cancel` does."""
        wanted = {"deliver_at_ms": deliver_at_ms, "delay_ms": delay_ms, "priority": priority}
        shape = {name: value for name, value in wanted.items() if value is not None}
        return await self._json("PATCH", self._of(topic, "messages", message_id), shape)

    async def cancel_bulk(
        self, topic: str, *, refs: Numbers | None = None, ids: Texts | None = None
    ) -> ChangeAnswer:
        """Cancel many, with a result each."""
        wire = encode_change(refs=refs, ids=ids)
        return _decoded(decode_changed, await self._bulk(self._of(topic, "messages:cancel"), wire))

    async def reschedule_bulk(
        self,
        topic: str,
        *,
        deliver_at_ms: Numbers,
        refs: Numbers | None = None,
        ids: Texts | None = None,
    ) -> ChangeAnswer:
        """Give many a new time, with a result each."""
        wire = encode_change(refs=refs, ids=ids, deliver_at_ms=deliver_at_ms)
        url = self._of(topic, "messages:reschedule")
        return _decoded(decode_changed, await self._bulk(url, wire))

    async def replay_bulk(
        self,
        topic: str,
        *,
        refs: Numbers | None = None,
        ids: Texts | None = None,
        deliver_at_ms: Numbers | None = None,
    ) -> ChangeAnswer:
        """Let many dead messages live again, at a time or now, with a result each."""
        wire = encode_change(refs=refs, ids=ids, deliver_at_ms=deliver_at_ms)
        return _decoded(decode_changed, await self._bulk(self._of(topic, "messages:replay"), wire))

    async def replay(
        self,
        topic: str,
        ids: Sequence[str],
        *,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> list[dict[str, Any]]:
        """Let dead messages live again. Per id a result: done, too_late (with state), unknown."""
        shape: dict[str, Any] = {"ids": list(ids)}
        wanted = {"deliver_at_ms": deliver_at_ms, "delay_ms": delay_ms}
        shape |= {name: value for name, value in wanted.items() if value is not None}
        answer = await self._json("POST", self._of(topic, "messages:replay"), shape)
        return list(answer["results"])

    # Below: the wire

    def _of(self, topic: str, *rest: str) -> str:
        return "/".join((self._topics, *map(segment, (topic, *rest))))

    async def _settle(self, topic: str, verb: str, shape: dict[str, Any]) -> list[str]:
        answer = await self._json("POST", self._of(topic, verb), shape)
        return list(answer["results"])

    async def _settle_bulk(self, topic: str, verb: str, wire: bytes) -> SettleAnswer:
        return _decoded(decode_settled, await self._bulk(self._of(topic, verb), wire))

    async def _bulk(self, url: str, wire: bytes, *, repeatable: bool = False) -> bytes:
        headers = {"Content-Type": BULK_TYPE, "Accept": BULK_TYPE}
        return await self._exchanges.call("POST", url, wire, headers, repeatable=repeatable)

    async def _json(
        self,
        method: str,
        url: str,
        shape: object | None = None,
        headers: Mapping[str, str] | None = None,
        extra_s: float = 0.0,
        *,
        repeatable: bool = False,
    ) -> dict[str, Any]:
        body = None if shape is None else json.dumps(shape).encode()
        sent = {"Accept": JSON_TYPE, **(headers or {})}
        if body is not None:
            sent["Content-Type"] = JSON_TYPE
        wire = await self._exchanges.call(method, url, body, sent, extra_s, repeatable=repeatable)
        return _decoded(_object, wire)


def _picked(shape: Mapping[str, Any]) -> dict[str, Any]:
    return {name: shape[name] for name in ("id", "deliver_at_ms", "result")}


def _object(wire: bytes) -> dict[str, Any]:
    value = json.loads(wire)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _decoded(decode: Callable[[bytes], Answer], wire: bytes) -> Answer:
    """An answer that cannot be read says nothing about what was done."""
    try:
        return decode(wire)
    except (BulkError, ValueError) as error:
        raise AnswerLost(f"the answer cannot be read: {error}") from error
