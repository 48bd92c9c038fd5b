"""Streams as server-sent events: the window, heartbeats, tickets, and how they end."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.broker.conftest import Secured
from tests.broker.web.streams import ACCEPT, listening, path_of

QUICK = {
    "delaylog.broker.streams.events.HEARTBEAT_SECONDS": 0.2,
    "delaylog.broker.web.responses.UNHEARD_SECONDS": 2.0,
}


@pytest.fixture(scope="module")
def broker(sound_broker: Any) -> Any:
    return sound_broker(constants=QUICK)


async def test_each_message_is_an_event_and_settling_opens_the_window(
    broker: Any, topic: str
) -> None:
    broker.post(f"/v1/topics/{topic}/messages", [{"body": f"line\n{n}"} for n in range(4)])
    async with listening(broker.url, path_of(topic, messages=2)) as events:
        found = [(await events.next())[1] for _ in range(2)]
        assert [each["body"] for each in found] == ["line\n0", "line\n1"]
        await asyncio.sleep(0.3)
        assert broker.counts(topic)["leased"] == 2
        receipts = [each["receipt"] for each in found]
        broker.post(f"/v1/topics/{topic}/ack", {"receipts": receipts[:1]})
        name, third = await events.next()
        assert (name, third["body"]) == ("message", "line\n2")
        broker.post(f"/v1/topics/{topic}/nack", {"receipts": receipts[1:], "delay_ms": 0})
        assert (await events.next())[1]["body"] in ("line\n1", "line\n3")


async def test_the_window_is_one_of_bytes_too(broker: Any, topic: str) -> None:
    broker.post(f"/v1/topics/{topic}/messages", [{"body": "x" * 1_000}] * 5)
    async with listening(broker.url, path_of(topic, bytes=2_000)) as events:
        for _ in range(2):
            await events.next()
        await asyncio.sleep(0.3)
        assert broker.counts(topic)["leased"] == 2


async def test_retry_and_heartbeats(broker: Any, topic: str) -> None:
    async with listening(broker.url, path_of(topic)) as events:
        assert await events.line() == b"retry: 1000\n"
        lines = [await events.line() for _ in range(5)]
        assert lines == [b"\n", b":\n", b"\n", b":\n", b"\n"]


async def test_the_last_event_says_why(broker: Any, topic: str) -> None:
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x"})
    async with listening(broker.url, path_of(topic)) as events:
        await events.next()
        assert broker.call("DELETE", f"/v1/topics/{topic}?force=true").status == 200
        name, problem = await events.next()
        assert (name, problem["code"], problem["status"]) == ("end", "unknown", 404)
        assert await events.line() == b"", "the body is complete"


async def test_a_client_that_has_gone_takes_no_messages(broker: Any, topic: str) -> None:
    async with listening(broker.url, path_of(topic)) as events:
        await events.line()
    broker.await_metric("delaylog_streams", 0)
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x"})
    (got,) = broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": 20_000})["messages"]
    assert got["attempts"] == 1, "the stream has leased it"


async def test_a_ticket_opens_one_stream(secured: Secured) -> None:
    topic = "tickets"
    secured.call("POST", f"/v1/topics/{topic}/messages", {"body": "x"})
    token = secured.principal("page", f"consumer:{topic}")
    ticket = secured.call("POST", "/v1/session/ticket", {}, token).json["ticket"]
    path = path_of(topic, ticket=ticket)
    async with listening(secured.broker.url, path) as events:
        assert (await events.next())[1]["body"] == "x"
        again = secured.call("GET", path, token=None, headers=ACCEPT)
        assert again.status == 401
        secured.call("DELETE", "/v1/principals/page")
        name, problem = await events.next()
        assert (name, problem["code"]) == ("end", "unauthorized")


@pytest.mark.parametrize(
    ("query", "field"),
    [({"messages": 0}, "messages"), ({"bytes": 0}, "messages"), ({"form": "bulk"}, "form")],
)
def test_an_empty_window_and_another_form_are_refused(
    broker: Any, topic: str, assert_problem: Any, query: dict[str, Any], field: str
) -> None:
    answer = broker.call("GET", path_of(topic, **query), headers=ACCEPT)
    assert_problem(answer, 400, "bad_request", field=field)


def test_a_client_that_takes_nothing_is_cut(broker: Any, topic: str) -> None:
    """Its window of the connection stays shut, as of a page that hangs."""
    for _ in range(20):
        broker.post(f"/v1/topics/{topic}/messages", [{"body": "x" * 10_000}] * 100)
    with broker.connect() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        path = path_of(topic, messages=2_000, bytes=1 << 30)
        accept = "text/event-stream"
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n".encode())
        broker.await_metric("delaylog_streams", 1)
        broker.await_metric("delaylog_streams", 0)
