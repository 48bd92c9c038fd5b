"""The plain clients against a scripted server: what each call sends and how failures read.

The server records requests and answers what the test says; the contract itself is tried against
the real broker by the drills and the demo.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgpack
import numpy as np
import pytest
from aiohttp import web

from delaylog.client import AnswerLost, ApiError, AsyncPlainClient, NotReached
from delaylog.client.wire.bulk import BULK_TYPE
from tests.client.either import PLAIN_CLIENTS
from tests.client.scenes import deaf_url, serving

MESSAGE = {
    "id": "a",
    "receipt": "r",
    "body": "hé",
    "deliver_at_ms": 5,
    "attempts": 1,
    "lease_until_ms": 9,
    "priority": 2,
    "tags": ["x"],
    "key": "k",
    "headers": {"h": "v"},
}


@pytest.fixture(autouse=True, params=PLAIN_CLIENTS, ids=["async", "sync"])
def _kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with either client."""
    monkeypatch.setitem(globals(), "AsyncPlainClient", request.param)


class Script:
    """Answers every request with one response and keeps what was asked."""

    def __init__(self, answer: object, *, status: int = 200, **headers: str) -> None:
        self.seen: list[tuple[str, str, bytes, Any]] = []
        self._wire = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self._status = status
        self._headers = headers

    async def handle(self, request: web.Request) -> web.Response:
        self.seen.append((request.method, request.raw_path, await request.read(), request.headers))
        return web.Response(status=self._status, body=self._wire, headers=self._headers)

    @property
    def path(self) -> str:
        return f"{self.seen[-1][0]} {self.seen[-1][1]}"

    @property
    def json(self) -> Any:
        return json.loads(self.seen[-1][2])

    @property
    def columns(self) -> Any:
        return msgpack.unpackb(self.seen[-1][2])


def play(
    script: Script, scene: Callable[[AsyncPlainClient], Awaitable[Any]], **options: Any
) -> Any:
    """Run a scene with a client of a server that follows the script."""

    async def run() -> Any:
        async with (
            serving(script.handle) as url,
            AsyncPlainClient(f"{url}/", **options) as client,
        ):
            return await scene(client)

    return asyncio.run(run())


def test_send_puts_text_as_text_and_bytes_as_base64() -> None:
    script = Script({"id": "~1", "deliver_at_ms": 7, "result": "created"})

    async def scene(client: AsyncPlainClient) -> None:
        sent = await client.send("t", "hé", deliver_at_ms=7, id="own", idempotency_key="once")
        assert (sent.id, sent.deliver_at_ms, sent.result) == ("~1", 7, "created")
        await client.send("t", b"\xff", delay_ms=0)

    play(script, scene, namespace="n", token="secret")
    (method, path, body, headers), (_, _, second, _) = script.seen
    assert (method, path) == ("POST", "/v1/ns/n/topics/t/messages")
    assert json.loads(body) == {"body": "hé", "deliver_at_ms": 7, "id": "own"}
    assert json.loads(second) == {"body_base64": "/w==", "delay_ms": 0}
    assert headers["Idempotency-Key"] == "once"
    assert headers["Authorization"] == "Bearer secret"


def test_send_many_answers_in_order() -> None:
    answer = [{"id": name, "deliver_at_ms": 1, "result": "created"} for name in "ab"]
    script = Script({"messages": answer})
    sent = play(script, lambda c: c.send_many("t", [{"body": b"1", "delay_ms": 1}, {"body": "2"}]))
    assert [each.id for each in sent] == ["a", "b"]
    assert script.json == [{"body": "1", "delay_ms": 1}, {"body": "2"}]


def test_send_bulk_carries_columns_both_ways() -> None:
    refs = np.array([4, 5], "<i8").tobytes()
    script = Script(msgpack.packb({"n": 2, "refs": refs, "deliver_at_ms": 3, "result": 0}))
    answer = play(
        script, lambda c: c.send_bulk("t", [b"a", b"b"], deliver_at_ms=3, producer="p", sequence=1)
    )
    assert answer.refs.tolist() == [4, 5]
    assert answer.deliver_at_ms.tolist() == [3, 3]
    assert script.columns["sequence"] == 1
    assert script.seen[0][3]["Content-Type"] == script.seen[0][3]["Accept"] == BULK_TYPE


def test_receive_reads_messages_and_the_brokers_clock() -> None:
    raw = {**MESSAGE, "body_base64": "/w=="}
    del raw["body"]
    script = Script({"messages": [MESSAGE, raw], "now_ms": 6})
    got = play(script, lambda c: c.receive("t", max=3, wait_ms=10, lease_ms=100, group="g"))
    assert got.now_ms == 6
    message = got.messages[0]
    assert (message.body, message.tags, message.headers) == ("hé".encode(), ("x",), {"h": "v"})
    assert got.messages[1].body == b"\xff"
    assert script.json == {"max": 3, "wait_ms": 10, "group": "g", "lease_ms": 100}


def test_ack_and_receive_reads_both() -> None:
    script = Script({"results": ["done", "gone"], "messages": [MESSAGE], "now_ms": 6})
    results, got = play(script, lambda c: c.ack_and_receive("t", ["r", "s"], max=2, wait_ms=5))
    assert results == ["done", "gone"]
    assert (got.now_ms, [message.body for message in got.messages]) == (6, ["hé".encode()])
    assert script.seen[0][1].endswith("/topics/t/ack_and_receive")
    assert script.json == {"receipts": ["r", "s"], "max": 2, "wait_ms": 5}


def test_a_lease_of_unsaid_length_is_the_topics() -> None:
    async def scene(client: AsyncPlainClient) -> None:
        await client.receive("t")
        assert script.json == {"max": 1, "wait_ms": 0}
        with pytest.raises(AnswerLost):
            await client.receive_bulk("t", max=2)
        assert script.json == {"max": 2, "wait_ms": 0}

    script = Script({"messages": [], "now_ms": 1})
    play(script, scene)


def test_receive_bulk_asks_in_json_for_columns() -> None:
    script = Script(msgpack.packb({"n": 0, "now_ms": 4}))
    batch = play(script, lambda c: c.receive_bulk("t", max=3, lease_ms=1))
    assert (batch.n, batch.now_ms) == (0, 4)
    assert script.seen[0][3]["Accept"] == BULK_TYPE
    assert script.json == {"max": 3, "wait_ms": 0, "lease_ms": 1}


def test_settling_by_receipt() -> None:
    script = Script({"results": ["done"]})

    async def scene(client: AsyncPlainClient) -> None:
        assert await client.ack("t", ["r"]) == ["done"]
        assert script.json == {"receipts": ["r"]}
        await client.nack("t", ["r"])
        assert script.json == {"receipts": ["r"]}
        await client.nack("t", ["r"], delay_ms=0)
        assert script.json == {"receipts": ["r"], "delay_ms": 0}
        await client.extend("t", ["r"], lease_ms=4)
        assert script.json == {"receipts": ["r"], "lease_ms": 4}

    play(script, scene)
    assert [path.rsplit("/", 1)[1] for _, path, _, _ in script.seen] == [
        "ack",
        "nack",
        "nack",
        "extend",
    ]


def test_settling_a_lease_whole() -> None:
    script = Script(msgpack.packb({"n": 3, "done": 3, "gone": b"", "unknown": b""}))

    async def scene(client: AsyncPlainClient) -> None:
        assert (await client.settle_bulk("t", "ack", 7)).done == 3
        assert script.columns == {"v": 1, "n": 0, "lease": 7, "all": True}
        await client.settle_bulk("t", "nack", 7, except_refs=[1], delay_ms=5)
        assert script.columns["delay_ms"] == 5
        await client.settle_bulk("t", "extend", 7, [1], lease_ms=6)
        assert script.columns["lease_ms"] == 6

    play(script, scene)


def test_one_message_by_an_awkward_id() -> None:
    script = Script({"result": "done", "state": "cancelled"})

    async def scene(client: AsyncPlainClient) -> None:
        await client.get("t", "a/b %é")
        assert script.path == "GET /v1/ns/default/topics/t/messages/a%2Fb%20%25%C3%A9"
        await client.cancel("t", "..", force=True)
        assert script.path == "DELETE /v1/ns/default/topics/t/messages/%2E%2E?force=true"
        await client.reschedule("t", "a", delay_ms=0, priority=3)
        assert script.path == "PATCH /v1/ns/default/topics/t/messages/a"
        assert script.json == {"delay_ms": 0, "priority": 3}

    play(script, scene)


def test_many_messages_by_ref() -> None:
    script = Script(msgpack.packb({"n": 1, "result": 1}))

    async def scene(client: AsyncPlainClient) -> None:
        assert (await client.change_bulk("t", "cancel", refs=[1])).result.tolist() == [1]
        assert script.path.endswith("/topics/t/messages:cancel")
        await client.change_bulk("t", "reschedule", ids=["a"], deliver_at_ms=4)
        assert script.path.endswith("/topics/t/messages:reschedule")

    play(script, scene)


def test_topics_and_stats() -> None:
    script = Script({"counts": {}})

    async def scene(client: AsyncPlainClient) -> None:
        await client.put_topic("t", {"lease_ms": 5})
        assert (script.path, script.json) == ("PUT /v1/ns/default/topics/t", {"lease_ms": 5})
        await client.topics()
        assert script.path == "GET /v1/ns/default/topics"
        assert await client.stats("t") == {"counts": {}}
        assert script.path == "GET /v1/ns/default/topics/t/stats"

    play(script, scene)


def test_a_problem_document_becomes_an_api_error() -> None:
    problem = {"status": 409, "code": "too_late", "detail": "it is leased", "state": "leased"}
    script = Script(problem, status=409, **{"Retry-After": "2"})
    with pytest.raises(ApiError) as caught:
        play(script, lambda c: c.cancel("t", "a"))
    error = caught.value
    assert (error.status, error.code, error.state) == (409, "too_late", "leased")
    assert error.retry_after_s == 2.0
    assert str(error) == "409 too_late: it is leased"


def test_an_error_in_another_shape_keeps_its_words() -> None:
    with pytest.raises(ApiError, match="slow down") as caught:
        play(Script(b'"slow down"', status=429), lambda c: c.topics())
    assert caught.value.retry_after_s is None


@pytest.mark.parametrize("answer", [b"<html>", b'"text"'])
def test_an_error_without_a_problem_document_still_reads(answer: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        play(Script(answer, status=502), lambda c: c.topics())
    assert (caught.value.status, caught.value.code) == (502, "unknown_error")


@pytest.mark.parametrize("answer", [b"{", b"\xff", b"[]"])
def test_an_answer_that_cannot_be_read_is_a_lost_answer(answer: bytes) -> None:
    with pytest.raises(AnswerLost):
        play(Script(answer), lambda c: c.topics())
    with pytest.raises(AnswerLost):
        play(Script(answer), lambda c: c.send_bulk("t", [b"a"], delay_ms=0))


async def test_no_listener_means_nothing_was_done() -> None:
    async with AsyncPlainClient(await deaf_url()) as client:
        with pytest.raises(NotReached):
            await client.topics()


@pytest.mark.parametrize("url", ["localhost:8711", "ftp://localhost", "nonsense", ""])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        AsyncPlainClient(url)


async def test_a_call_whose_connection_breaks_is_not_sent_again() -> None:
    """A repeated cancel would answer otherwise than the first, so even DELETE goes out once."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if len(asked) == 1:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with AsyncPlainClient(f"http://127.0.0.1:{port}") as client:
        await client.get("t", "a")
        with pytest.raises(AnswerLost):
            await client.cancel("t", "a")
    server.close()
    assert [line.split()[0] for line in asked] == [b"GET", b"DELETE"]


class Slow(Script):
    async def handle(self, request: web.Request) -> web.Response:
        await asyncio.sleep(0.5)
        return await super().handle(request)


def test_a_call_that_takes_too_long_is_a_lost_answer() -> None:
    with pytest.raises(AnswerLost):
        play(Slow({}), lambda c: c.topics(), timeout_s=0.05)


def test_closing_ends_waiting_calls() -> None:
    async def scene(client: AsyncPlainClient) -> None:
        call = asyncio.ensure_future(client.receive("t", wait_ms=400))
        await asyncio.sleep(0.05)
        await client.close()
        with pytest.raises(AnswerLost):
            await call

    play(Slow({}), scene)
