"""`delaylog tail` and its call: what is handed out is told, once, and stays with its consumer."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from delaylog.broker.cli import connection
from delaylog.broker.cli.parser import make_parser
from delaylog.broker.cli.watching import tail as tail_module
from delaylog.client.errors import AnswerLost, NotReached
from tests.starts.warm import as_text, run_warm
from tests.waiting import await_that


def tail(broker: Any, topic: str, **query: object) -> Any:
    words = "&".join(f"{name}={value}" for name, value in query.items())
    answer = broker.call("GET", f"/v1/topics/{topic}/tail?{words}")
    assert answer.status == 200, answer
    return answer.json


def receive(broker: Any, topic: str, **more: object) -> None:
    assert broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": 5_000, **more})["messages"]


def test_a_call_waits_for_hand_outs(broker: Any, topic: str) -> None:
    """Purpose: nothing is missed between calls, and nobody is disturbed."""
    broker.post(f"/v1/topics/{topic}/messages", {"id": "a", "body": "x"})
    begun = tail(broker, topic)
    assert (begun["messages"], begun["complete"]) == ([], True)
    receive(broker, topic, consumer="c")
    seen = tail(broker, topic, after=begun["next"])
    (message,) = seen["messages"]
    assert (message["id"], message["group"], message["consumer"]) == ("a", "default", "c")
    assert message["handed_out_ms"] >= message["deliver_at_ms"]
    counts = broker.call("GET", f"/v1/topics/{topic}/stats").json["counts"]
    assert (counts["leased"], counts["ready"]) == (1, 0)
    assert tail(broker, topic, after=seen["next"], wait_ms=150)["messages"] == []
    broker.post(f"/v1/topics/{topic}/messages", {"id": "b", "body": "x"})
    later = threading.Timer(0.2, receive, (broker, topic))
    later.start()
    waited = tail(broker, topic, after=seen["next"], wait_ms=20_000)
    later.join()
    assert [each["id"] for each in waited["messages"]] == ["b"]


def test_a_topic_that_nobody_made(broker: Any) -> None:
    assert broker.call("GET", "/v1/topics/nobody-made-it/tail").status == 404


def test_the_verb(broker: Any, topic: str) -> None:
    """Lines as they come, until as many as asked for."""
    broker.post(f"/v1/topics/{topic}/messages", [{"id": each, "body": "x"} for each in "abc"])
    before, out = count_of(broker), []

    def watch(*more: str) -> None:
        out.append(as_text(run_warm("tail", topic, "--count", "3", "--url", broker.url, *more)))

    running = [threading.Thread(target=watch, args=more) for more in ((), ("--json",))]
    for each in running:
        each.start()
    # Both have begun to watch.
    await_that(lambda: count_of(broker) >= before + 2)
    receive(broker, topic, max=3)
    for each in running:
        each.join(30)
    lines, plain = sorted(out, key=lambda each: not each.stdout.startswith("{"))
    assert plain.returncode == lines.returncode == 0
    assert [line.split()[1] for line in plain.stdout.splitlines()] == ["a", "b", "c"]
    assert "attempt 1  group default" in plain.stdout
    assert [json.loads(line)["id"] for line in lines.stdout.splitlines()] == ["a", "b", "c"]


class Restarting:
    """A transport to a broker that is restarted after the first answer."""

    def __init__(self, *_: object, **__: object) -> None:
        self._left: list[dict[str, Any] | Exception] = [
            {"messages": [], "next": 5, "complete": True},
            AnswerLost("the connection was closed"),
            NotReached("Connection refused"),
            {"messages": [MESSAGE], "next": 900, "complete": False},
        ]

    async def carry(self, _: object) -> dict[str, Any]:
        result: dict[str, Any] | Exception = self._left.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    async def close(self) -> None:
        """Nothing is open."""


MESSAGE = {
    "id": "a",
    "handed_out_ms": 2_000,
    "deliver_at_ms": 1_000,
    "attempts": 1,
    "group": "default",
    "consumer": None,
}


def test_a_restart_ends_no_tail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says once that it tries again, and that something was missed."""
    monkeypatch.setattr(connection, "AsyncTransport", Restarting)
    monkeypatch.setattr(tail_module, "RETRY_S", 0.0)
    words = ["tail", "t", "--count", "1"]
    assert asyncio.run(tail_module.tail_command(make_parser("tail").parse_args(words))) == 0
    told = capsys.readouterr()
    assert told.out.split()[1:3] == ["a", "late"]
    assert told.err.splitlines() == [
        "the connection was closed; trying again",
        "some hand-outs were missed",
    ]


def test_a_quiet_topic_is_no_late_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call may take the wait for a hand-out and the time of an answer."""
    limits_s: list[float] = []

    class Quiet(Restarting):
        async def carry(self, call: Any) -> dict[str, Any]:
            limits_s.append(call.limit_s)
            return {"messages": [MESSAGE] * (len(limits_s) > 1), "next": 5, "complete": True}

    monkeypatch.setattr(connection, "AsyncTransport", Quiet)
    words = ["tail", "t", "--count", "1"]
    assert asyncio.run(tail_module.tail_command(make_parser("tail").parse_args(words))) == 0
    assert limits_s == [connection.ANSWER_S, connection.ANSWER_S + tail_module.WAIT_MS / 1000]


def count_of(broker: Any) -> float:
    """Answered calls of the tail."""
    name = 'delaylog_request_seconds_count{call="getTail",face="http"} '
    lines = broker.call("GET", "/metrics").body.decode().splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))
