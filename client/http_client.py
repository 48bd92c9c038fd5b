"""AsyncClient: the broker's native HTTP API for asyncio programs, one method a call.

The one rule: a call is carried out once, or its failure is shown: only the caller knows whether a
repeat is safe. What is safe by itself is done here for a cluster: a call that a node sends on goes
to the leader, one that reached nobody goes to another node, and while there is no leader, reads
and sends with a key or a producer and sequence are tried again for a while. Batching and consumer
loops belong in a layer above.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import aiohttp
from yarl import URL

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

# Time a call may take beyond what it asked the broker to wait.
CALL_TIMEOUT_S: Final = 30.0
JSON_TYPE: Final = "application/json"
# How long what may be repeated is tried while a cluster has no leader; one comes within a second.
FAILOVER_S: Final = 10.0
RETRY_EVERY_S: Final = 0.1
HOPS_MAX: Final = 5
MOVED: Final = 307

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
        self._failover_s = failover_s
        self._root = base_url.rstrip("/") + "/v1"
        self._topics = f"{self._root}/ns/{segment(namespace)}/topics"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._call_timeout_s = call_timeout_s
        self._connections_max = connections_max
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=self._connections_max),
        )
        # aiohttp repeats GET, PUT and DELETE by itself when a kept connection breaks. A repeated
        # cancel answers differently from the first, so the caller has to see the break instead.
        self._session._retry_connection = False
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
        if self._session is not None:
            await self._session.close()
            self._session = None

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
        wire = await self._call(
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
        return await self._call("POST", url, wire, headers, repeatable=repeatable)

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
        wire = await self._call(method, url, body, sent, extra_s, repeatable=repeatable)
        return _decoded(_object, wire)

    async def _call(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        extra_s: float = 0.0,
        *,
        repeatable: bool = False,
    ) -> bytes:
        """The body of a 2xx answer, or one of the three errors; `repeatable` = twice is as once."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._failover_s
        repeatable = repeatable or method == "GET"
        hops = 0
        while True:
            try:
                return await self._exchange(method, self._route.to(url), body, headers, extra_s)
            except ApiError as error:
                moved = error.location is not None and hops < HOPS_MAX
                if moved and await self._follow(error.location or ""):
                    hops += 1
                    continue
                may_repeat = repeatable and error.code == "not_ready"
                if not may_repeat or loop.time() >= until:
                    raise
            except (NotReached, AnswerLost) as error:
                may_repeat = repeatable or isinstance(error, NotReached)
                may_repeat = may_repeat and self._route.knows_others
                if not may_repeat or loop.time() >= until:
                    raise
            hops = 0
            self._route.next()
            await asyncio.sleep(RETRY_EVERY_S)

    async def _follow(self, location: str) -> bool:
        """Go to the leader, if it is a member; who the members are, a node that we know says."""
        if self._route.follow(location):
            return True
        try:
            wire = await self._exchange(
                "GET", self._route.to(f"{self._root}/cluster"), None, {"Accept": JSON_TYPE}
            )
        except ClientError:
            return False
        self._route.learn(_decoded(_object, wire))
        return self._route.follow(location)

    async def _exchange(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        extra_s: float = 0.0,
    ) -> bytes:
        """One exchange with one node."""
        assert self._session is not None, "use the client inside `async with`"
        timeout = aiohttp.ClientTimeout(total=self._call_timeout_s + extra_s)
        target = URL(url, encoded=True)
        try:
            async with self._session.request(
                method,
                target,
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                answer = await response.read()
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
            raise NotReached(f"{method} {url}: not an http address") from error
        except aiohttp.ClientConnectorError as error:
            raise NotReached(f"{method} {url}: {error}") from error
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise AnswerLost(f"{method} {url}: {error or type(error).__name__}") from error
        if response.status >= 300:
            raise _api_error(response, answer)
        return answer


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


def _api_error(response: aiohttp.ClientResponse, answer: bytes) -> ApiError:
    try:
        problem = json.loads(answer)
    except ValueError:
        problem = {"detail": answer[:200].decode(errors="replace")}
    if not isinstance(problem, dict):
        problem = {"detail": str(problem)[:200]}
    try:
        retry_after_s = float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        retry_after_s = None
    location = response.headers.get("Location") if response.status == MOVED else None
    return ApiError(response.status, problem, retry_after_s, location)
