"""Bodies of many requests at once have one bound, and a broker short of memory blames no body."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import msgpack
import orjson
import pytest

from delaylog.broker.calls import context
from delaylog.broker.calls.answers import Problem
from delaylog.broker.calls.context import BULK, JSON, MSGPACK, BufferedContext
from delaylog.broker.calls.forms import bulk_bodies
from delaylog.broker.engine.limits import Limits
from tests.waiting import await_that

REQUEST_MAX, BODIES_MAX = 1_000_000, 3_000_000
SMALL = {"body": "x", "delay_ms": 3_600_000}


@pytest.fixture(scope="module")
def tight(sound_broker: Any) -> Any:
    """A broker with room for three large bodies."""
    return sound_broker(
        limits=f"request_bytes_max = {REQUEST_MAX}\nbodies_bytes_max = {BODIES_MAX}"
    )


def _begin(broker: Any, topic: str, sent: int) -> Any:
    """A send whose body lacks its end."""
    sock = broker.connect()
    head = f"POST /v1/topics/{topic}/messages HTTP/1.1\r\nHost: localhost\r\n"
    sock.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % REQUEST_MAX + b" " * sent)
    return sock


def test_bodies_that_are_held_open(tight: Any, topic: str) -> None:
    """What is over the bound is 503 with Retry-After; small sends go on; closing gives it back."""
    held = [_begin(tight, topic, 900_000) for _ in range(6)]
    answers = b""
    until = time.monotonic() + 20
    while answers.count(b"HTTP/1.1 503 ") < 3:
        assert time.monotonic() < until
        for sock in held:
            sock.settimeout(0.05)
            try:
                answers += sock.recv(65_536)
            except TimeoutError:
                continue
    assert answers.count(b"\r\nRetry-After: 1\r\n") == 3
    assert answers.count(b'"code":"not_ready"') == 3
    for _ in range(20):
        tight.post(f"/v1/topics/{topic}/messages", SMALL)
    for sock in held:
        sock.close()
    large = [{**SMALL, "body": "x" * 900}] * 1_000
    path = f"/v1/topics/{topic}/messages"
    await_that(lambda: tight.call("POST", path, large).status == 200)
    assert tight.counts(topic)["waiting"] == 1_020


def test_an_announced_body_takes_nothing(tight: Any, topic: str) -> None:
    """Only bytes that have arrived count."""
    held = [_begin(tight, topic, 0) for _ in range(20)]
    try:
        large = [{**SMALL, "body": "x" * 900}] * 1_000
        assert tight.call("POST", f"/v1/topics/{topic}/messages", large).status == 200
    finally:
        for sock in held:
            sock.close()


def test_answered_bodies_are_given_back(tight: Any, topic: str) -> None:
    """Good ones, refused ones, and ones without a topic: many times the bound in all."""
    large = orjson.dumps([{**SMALL, "body": "x" * 900}] * 1_000)
    for _ in range(5):
        assert tight.call("POST", f"/v1/topics/{topic}/messages", large).status == 200
        assert tight.call("POST", f"/v1/topics/{topic}/messages", b"{" + large).status == 400
        assert tight.call("POST", f"/v1/topics/{topic}/ack", large).status == 400


NO_MEMORY = [
    (JSON, context.orjson, "loads", MemoryError()),
    (JSON, context.orjson, "loads", orjson.JSONDecodeError("Not enough memory", "", 0)),
    (MSGPACK, context.msgpack, "unpackb", MemoryError()),
    (BULK, bulk_bodies, "decode_send", MemoryError()),
]


@pytest.mark.parametrize(("kind", "where", "name", "error"), NO_MEMORY)
def test_no_memory_is_not_the_bodys_fault(
    monkeypatch: pytest.MonkeyPatch, kind: str, where: Any, name: str, error: Exception
) -> None:
    """503, so that a client tries again: with 400 it would drop its message."""

    def no_memory(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(where, name, no_memory)
    node: Any = SimpleNamespace(engine=SimpleNamespace(limits=Limits()))
    body = msgpack.packb({}) if kind != JSON else b"{}"
    ctx = BufferedContext(node, {"Content-Type": kind}, "", body)
    with pytest.raises(Problem) as refused:
        asyncio.run(bulk_bodies.read_batch(ctx) if kind == BULK else ctx.members())
    assert refused.value.code == "not_ready"
    assert "memory" in refused.value.detail
