"""What the calls of plain clients send, how their answers read, and what plain clients make of
failures. The contract itself is tried against real brokers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgpack
import numpy as np
import pytest
from aiohttp import web

from delaylog.client import AnswerLost, ApiError
from delaylog.client.calls import control, messages, topics
from delaylog.client.calls.call import BULK_FORM, Call, Places
from delaylog.client.wire.bulk import BULK_TYPE
from tests.client.scenes import serving

P = Places("default")
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
RECEIVE = {"max": 3, "wait_ms": 10, "group": "g", "lease_ms": 100}
MS = timedelta(milliseconds=1)
WISHES: dict[str, Any] = {"max": 3, "group": "g", "wait": 10 * MS, "lease": 100 * MS}
ONE = {"receipts": ["r"]}


@pytest.mark.parametrize(
    ("call", "line", "members"),
    [
        (messages.send(P, "t", "é", deliver_at_ms=7), "POST /messages", {"deliver_at_ms": 7}),
        (messages.send(P, "t", b"\xff"), "POST /messages", {"body_base64": "/w=="}),
        (messages.receive(P, "t"), "POST /receive", {"max": 1, "wait_ms": 0}),
        (messages.receive(P, "t", **WISHES), "POST /receive", RECEIVE),
        (messages.receive_columns(P, "t", max=2), "POST /receive", {"max": 2, "wait_ms": 0}),
        (
            messages.ack_and_receive(P, "t", ["r"], max=2, wait=timedelta(milliseconds=5)),
            "POST /ack_and_receive",
            {**ONE, "max": 2, "wait_ms": 5},
        ),
        (messages.settle(P, "t", "ack", ["r"]), "POST /ack", ONE),
        (messages.settle(P, "t", "nack", ["r"]), "POST /nack", ONE),
        (messages.settle(P, "t", "nack", ["r"], delay_ms=0), "POST /nack", {**ONE, "delay_ms": 0}),
        (messages.settle(P, "t", "extend", ["r"], lease_ms=4), "POST /extend", {"lease_ms": 4}),
        (control.get(P, "t", "a/b %é"), "GET /messages/a%2Fb%20%25%C3%A9", None),
        (control.cancel(P, "t", "..", force=True), "DELETE /messages/%2E%2E?force=true", None),
        (
            control.reschedule(P, "t", "a", delay=timedelta(0), priority=3),
            "PATCH /messages/a",
            {"delay_ms": 0, "priority": 3},
        ),
        (topics.put_topic(P, "t", {"lease_ms": 5}), "PUT ", {"lease_ms": 5}),
        (topics.stats(P, "t"), "GET /stats", None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_request_of_a_call(call: Call[Any], line: str, members: dict[str, Any] | None) -> None:
    method, _, tail = line.partition(" ")
    assert (call.method, call.path) == (method, f"/v1/ns/default/topics/t{tail}")
    sent = None if call.body is None else json.loads(call.body)
    if members is None:
        assert sent is None
    elif "body" in sent or "body_base64" in sent or "receipts" in sent:
        assert members.items() <= sent.items()
    else:
        assert sent == members


@pytest.mark.parametrize(
    ("call", "tail", "members"),
    [
        (
            messages.settle_columns(P, "t", "ack", 7),
            "ack",
            {"v": 1, "n": 0, "lease": 7, "all": True},
        ),
        (
            messages.settle_columns(P, "t", "nack", 7, except_refs=[1], delay_ms=5),
            "nack",
            {"delay_ms": 5},
        ),
        (messages.settle_columns(P, "t", "extend", 7, [1], lease_ms=6), "extend", {"lease_ms": 6}),
        (control.change_columns(P, "t", "cancel", refs=[1]), "messages:cancel", {"n": 1}),
        (
            control.change_columns(P, "t", "reschedule", ids=["a"], deliver_at_ms=4),
            "messages:reschedule",
            {"id": b"a", "deliver_at_ms": 4},
        ),
        (
            messages.send_columns(P, "t", [b"a"], deliver_at_ms=3, producer="p", sequence=1),
            "messages",
            {"producer": "p", "sequence": 1, "deliver_at_ms": 3},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_columns_of_a_call(call: Call[Any], tail: str, members: dict[str, Any]) -> None:
    assert (call.method, call.path) == ("POST", f"/v1/ns/default/topics/t/{tail}")
    assert call.form == BULK_FORM
    assert call.body is not None
    assert members.items() <= msgpack.unpackb(call.body).items()


def test_answers() -> None:
    """Messages with the broker's clock, results, and columns."""
    raw = {**MESSAGE, "body_base64": "/w=="}
    del raw["body"]
    answer = json.dumps({"results": ["done"], "messages": [MESSAGE, raw], "now_ms": 6}).encode()
    results, got = messages.ack_and_receive(P, "t", ["r"]).decode(answer)
    assert (results, got.now_ms) == (["done"], 6)
    message = got.messages[0]
    assert (message.body, message.tags, message.headers) == ("hé".encode(), ("x",), {"h": "v"})
    assert got.messages[1].body == b"\xff"
    assert messages.receive(P, "t").decode(answer) == got
    sent = [{"id": name, "deliver_at_ms": 1, "result": "created"} for name in "ab"]
    many = messages.send_many(P, "t", [{"body": b"1", "delay_ms": 1}, {"body": "2"}])
    assert json.loads(many.body or b"") == [{"body": "1", "delay_ms": 1}, {"body": "2"}]
    found = many.decode(json.dumps({"messages": sent}).encode())
    assert [each.id for each in found] == ["a", "b"]
    columns = {"n": 2, "refs": np.array([4, 5], "<i8").tobytes(), "deliver_at_ms": 3, "result": 0}
    batch = messages.send_columns(P, "t", [b"a", b"b"], delay_ms=0).decode(msgpack.packb(columns))
    assert (batch.refs.tolist(), batch.deliver_at_ms.tolist()) == ([4, 5], [3, 3])
    empty = messages.receive_columns(P, "t").decode(msgpack.packb({"n": 0, "now_ms": 4}))
    assert (empty.n, empty.now_ms) == (0, 4)


class Script:
    """Answers every request with one response and keeps what was asked."""

    def __init__(self, answer: object, *, status: int = 200, **headers: str) -> None:
        self.seen: list[tuple[str, bytes, Any]] = []
        self._wire = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self._status = status
        self._headers = headers

    async def handle(self, request: web.Request) -> web.Response:
        line = f"{request.method} {request.raw_path}"
        self.seen.append((line, await request.read(), request.headers))
        return web.Response(status=self._status, body=self._wire, headers=self._headers)


async def play(
    plain: Any, script: Script, scene: Callable[[Any], Awaitable[Any]], **options: Any
) -> Any:
    """Run a scene with a client of a server that follows the script."""
    async with serving(script.handle) as url, plain(f"{url}/", **options) as client:
        return await scene(client)


async def test_a_request_has_the_namespace_the_token_and_the_key(plain: Any) -> None:
    script = Script({"id": "~1", "deliver_at_ms": 7, "result": "created"})

    async def scene(client: Any) -> None:
        sent = await client.send("t", "hé", deliver_at_ms=7, id="own", idempotency_key="once")
        assert (sent.id, sent.deliver_at_ms, sent.result) == ("~1", 7, "created")
        with pytest.raises(AnswerLost):
            await client.send_bulk("t", [b"a"], delay_ms=0)

    await play(plain, script, scene, namespace="n", token="secret")
    (line, body, headers), (_, _, bulk) = script.seen
    assert line == "POST /v1/ns/n/topics/t/messages"
    assert json.loads(body) == {"body": "hé", "deliver_at_ms": 7, "id": "own"}
    assert headers["Idempotency-Key"] == "once"
    assert headers["Authorization"] == "Bearer secret"
    assert bulk["Content-Type"] == bulk["Accept"] == BULK_TYPE


async def test_an_empty_key_goes_to_the_broker_which_refuses_it(plain: Any) -> None:
    """A send without a key would not be repeated, nor recognised as a repeat."""
    script = Script({"id": "~1", "deliver_at_ms": 7, "result": "created"})

    async def scene(client: Any) -> None:
        await client.send("t", "x", idempotency_key="")

    await play(plain, script, scene)
    ((_, _, headers),) = script.seen
    assert headers["Idempotency-Key"] == ""


async def test_a_problem_document_becomes_an_api_error(plain: Any) -> None:
    problem = {"status": 409, "code": "too_late", "detail": "it is leased", "state": "leased"}
    script = Script(problem, status=409, **{"Retry-After": "2"})
    with pytest.raises(ApiError, match="409 too_late: it is leased") as caught:
        await play(plain, script, lambda client: client.cancel("t", "a"))
    assert (caught.value.state, caught.value.retry_after_s) == ("leased", 2.0)


@pytest.mark.parametrize("answer", [b"<html>", b'"slow down"'])
async def test_an_error_without_a_problem_document_still_reads(plain: Any, answer: bytes) -> None:
    """A text keeps its words."""
    with pytest.raises(ApiError) as caught:
        await play(plain, Script(answer, status=502), lambda client: client.topics())
    assert (caught.value.status, caught.value.code) == (502, "unknown_error")
    assert caught.value.retry_after_s is None
    assert b"html" in answer or "slow down" in str(caught.value)


@pytest.mark.parametrize("answer", [b"{", b"\xff", b"[]"])
async def test_an_answer_that_cannot_be_read_is_a_lost_answer(plain: Any, answer: bytes) -> None:
    with pytest.raises(AnswerLost):
        await play(plain, Script(answer), lambda client: client.topics())


async def test_a_call_whose_connection_breaks_is_not_sent_again(plain: Any) -> None:
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
    async with server, plain(f"http://127.0.0.1:{port}") as client:
        await client.get("t", "a")
        with pytest.raises(AnswerLost):
            await client.cancel("t", "a")
    assert [line.split()[0] for line in asked] == [b"GET", b"DELETE"]


async def test_closing_ends_waiting_calls(plain: Any) -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        asked.set()
        await over.wait()
        return web.json_response({})

    async with serving(hang) as url:
        client = plain(url)
        call = asyncio.ensure_future(client.receive("t", wait=timedelta(seconds=30)))
        await asked.wait()
        await client.close()
        with pytest.raises(AnswerLost):
            await call
        over.set()
