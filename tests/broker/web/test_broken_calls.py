"""A bug in a call: its client gets a problem document and an id, by which the log has the cause."""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
from typing import Any

import aiohttp
import pytest

from tests.broker.web.streams import path_of
from tests.broker.web.test_fast_lane import request

BUGS = """
import sys
from delaylog.broker.calls import operations, short_calls
from delaylog.broker.streams.flow import Flow
from delaylog.broker.web.callers import Callers
from delaylog.broker.camellia.queue_calls import QueueCalls
from delaylog.broker.web.fast_lane import FastLane

async def fail(*_):
    raise RuntimeError("a bug")

def fail_now(*_):
    raise RuntimeError("a bug")

operations.HANDLERS |= dict.fromkeys(("getTopic", "ack"), fail)
short_calls.SHORT["nack"] = fail_now
short_calls.sent_answer = fail_now
by_token, head = Callers.by_token, FastLane.head
Callers.by_token = lambda self, headers, *rest: (
    fail_now() if "X-Caller" in headers else by_token(self, headers, *rest)
)
FastLane.head = lambda self, data: (
    fail_now() if b"X-Head" in data.partition(b"\\r\\n\\r\\n")[0] else head(self, data)
)
Flow.next = QueueCalls.pull_msg = fail
from delaylog.broker.cli.main import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def broken(start_broker: Any) -> Any:
    broker = start_broker(program=(sys.executable, "-P", "-c", BUGS))
    yield broker
    assert broker.stop() == 0


def causes(broker: Any) -> dict[str, str]:
    """The exceptions in the log, by the id of their requests."""
    lines = [line for line in broker.logs() if "exception" in line and "request_id" in line]
    return {line["request_id"]: line["exception"] for line in lines}


def counted(broker: Any, face: str) -> float:
    text = broker.call("GET", "/metrics").body.decode()
    wanted = f'delaylog_problems_total{{code="internal",face="{face}"}} '
    return sum(float(line.removeprefix(wanted)) for line in text.splitlines() if wanted in line)


@pytest.mark.parametrize("lane", ["fast", "answer of a short call", "short call", "other"])
def test_a_bug_is_a_problem_with_an_id(broken: Any, lane: str) -> None:
    """The connection serves the next request, and the answer counts."""
    before = counted(broken, "http")
    connection = http.client.HTTPConnection("127.0.0.1", broken.port, timeout=20)
    for _ in range(2):
        if lane == "fast":
            connection.request("POST", "/v1/topics/t/ack", b"[]")
        elif lane == "answer of a short call":
            connection.request("POST", "/v1/topics/t/messages", b'{"body":"x"}')
        elif lane == "short call":
            connection.request("POST", "/v1/topics/t/nack", b"{}")
        else:
            connection.request("GET", "/v1/topics/t", headers={"traceparent": "x"})
        response = connection.getresponse()
        document = json.loads(response.read())
        request_id = response.headers["X-Request-Id"]
        assert (response.status, document["code"]) == (500, "internal")
        assert response.headers["Content-Type"] == "application/problem+json"
        assert request_id in document["detail"]
        assert "RuntimeError: a bug" in causes(broken)[request_id]
    connection.close()
    assert counted(broken, "http") == before + 2


def test_a_bug_in_finding_the_caller_leaves_the_general_way(broken: Any) -> None:
    answer = broken.call("POST", "/v1/topics/none/receive", {}, {"X-Caller": "x"})
    assert (answer.status, answer.json["messages"]) == (200, [])


def test_a_bug_in_reading_the_next_request_ends_the_connection_alone(broken: Any) -> None:
    """The request is read when a commit has answered the one before it."""
    with broken.connect() as sock:
        sock.settimeout(20)
        nack = request("/v1/topics/t/nack", b"{}", "X-Head: x\r\n")
        sock.sendall(request("/v1/topics/t/messages", b'{"body":"x"}') + nack)
        raw = b""
        while piece := sock.recv(4_096):
            raw += piece
    assert raw.count(b"HTTP/1.1 ") == 1
    assert broken.call("GET", "/v1/topics/t").status == 500


def test_camellia_counts_and_names_it_too(broken: Any) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    body = b"topic=t&ackTimeoutMillis=1000&batch=1"
    answer = broken.call("POST", "/camellia/delayQueue/pullMsg", body, form)
    request_id = answer.headers["X-Request-Id"]
    assert (answer.status, answer.json["code"]) == (200, 500)
    assert request_id in answer.json["msg"]
    assert "RuntimeError: a bug" in causes(broken)[request_id]
    assert counted(broken, "camellia") == 1


async def test_a_stream_ends_with_the_id(broken: Any) -> None:
    """By a close frame of a WebSocket; server-sent events break off, since their status is sent."""
    broken.call("PUT", "/v1/topics/streamed", {})
    before = counted(broken, "http")
    path = path_of("streamed", messages=1, bytes=1_000)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{broken.port}") as session:
        async with session.ws_connect(path) as socket:
            assert "X-Request-Id" in socket._response.headers
            while (message := await socket.receive(20)).type is aiohttp.WSMsgType.TEXT:
                pass
            assert socket.close_code == 1011
            assert socket._response.headers["X-Request-Id"] in str(message.extra)
        async with session.get(path, headers={"Accept": "text/event-stream"}) as response:
            request_id = response.headers["X-Request-Id"]
            with pytest.raises(aiohttp.ClientError):
                await asyncio.wait_for(response.read(), 20)
    assert "RuntimeError: a bug" in causes(broken)[request_id]
    assert counted(broken, "http") == before + 2


HALF_APPLIED = """
import sys
from delaylog.broker.engine.send import sends
from delaylog.broker.engine.state import whole

apply_send_few = sends.apply_send_few

@whole
def apply(state, topic, *rest):
    if topic.name == "broken":
        raise RuntimeError("a bug")
    return apply_send_few(state, topic, *rest)

sends.apply_send_few = apply
from delaylog.broker.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize("fsync", ["always", "interval"])
def test_a_frame_that_was_applied_in_part_is_not_written(start_broker: Any, fsync: str) -> None:
    """The node ends, does not answer its call, and the next start finds all that was answered."""
    broken = start_broker("--fsync", fsync, program=(sys.executable, "-P", "-c", HALF_APPLIED))
    for name in ("broken", "sound"):
        assert broken.call("PUT", f"/v1/topics/{name}", {}).status == 201
    sound, bad = (f"/v1/topics/{name}/messages" for name in ("sound", "broken"))
    with broken.connect() as first, broken.connect() as second:
        first.sendall(request(sound, b'{"id":"before","body":"x"}'))
        assert b" 200 " in first.recv(4_096)
        first.sendall(request(bad, b'{"body":"x"}'))
        second.sendall(request(sound, b'{"id":"beside","body":"x"}'))
        answers = [
            b"".join(iter(lambda sock=sock: sock.recv(4_096), b"")) for sock in (first, second)
        ]
    refused, beside = answers
    assert b" 200 " not in refused
    assert broken.wait() != 0
    broken.program = None
    broken.start()
    found = broken.call("GET", "/v1/topics/sound/messages").json["messages"]
    # In the turn of the error, or in the one before it.
    answered = ["before", "beside"] if b" 200 " in beside else ["before"]
    assert {one["id"] for one in found} >= {*answered}
    assert broken.call("GET", "/v1/topics/broken/messages").json["messages"] == []
    assert broken.stop() == 0
