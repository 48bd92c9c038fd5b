"""Each door takes a negative delay as now, however large, and refuses one over the horizon.

A door sends a message, or returns one to the queue, with a delay; it gives the time until the
message is due, as the broker answers it, or the text of a refusal.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import msgpack
import numpy as np
import pyarrow as pa
import pytest

import delaylog
from delaylog.broker.calls.forms.arrow_stream import ARROW
from delaylog.client.child_broker import free_port
from delaylog.client.errors import ClientError
from delaylog.client.wire.times import span_of
from tests.broker.answer import Answer
from tests.broker.calls.forms.arrow_streams import one, stream
from tests.broker.conftest import BULK, MSGPACK, Broker
from tests.broker.resp.resp_client import RespClient

NEGATIVE = (-1, -5, -time.time_ns() // 1_000_000 - 1, -(10**15), -(2**63))
HORIZON_MS = 10 * 366 * 86_400_000
_TOPICS = itertools.count()


class Doors:
    """A broker and its clients."""

    def __init__(self, broker: Broker, resp: RespClient, client: delaylog.Client) -> None:
        self.broker = broker
        self.resp = resp
        self.client = client

    def topic(self) -> str:
        return f"d{next(_TOPICS)}"

    def post(self, topic: str, body: Any, *, call: str = "messages", **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.broker.call("POST", f"/v1/topics/{topic}/{call}", body, named)

    def receipt(self, topic: str) -> str:
        self.broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "id": "m"})
        found = self.broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": 5_000})
        return str(found["messages"][0]["receipt"])


@pytest.fixture(scope="module")
def doors(sound_broker: Callable[..., Broker]) -> Iterator[Doors]:
    port = free_port()
    broker = sound_broker("--resp", f"127.0.0.1:{port}")
    resp = RespClient(port)
    with delaylog.Client(broker.url) as client:
        yield Doors(broker, resp, client)
    resp.close()


def part_send(doors: Doors, topic: str, delay_ms: int) -> Any:
    doors.broker.post("/v1/transactions", {"transaction": topic})
    fields = {"v": 1, "n": 1, "body_size": 1, "bodies": b"x", "delay_ms": delay_ms}
    staged = doors.broker.bulk(f"/v1/transactions/{topic}/parts?topic={topic}&part=0", fields)
    if staged.status != 200:
        return staged
    winners = [{"producer": "", "part": 0, "attempt": 0, "rows": 1}]
    return doors.broker.call("POST", f"/v1/transactions/{topic}/commit", {"winners": winners})


def reschedule(doors: Doors, topic: str, delay_ms: int) -> Any:
    sent = doors.post(topic, {"body": "x", "delay_ms": 60_000}).json
    path = f"/v1/topics/{topic}/messages/{sent['id']}"
    return doors.broker.call("PATCH", path, {"delay_ms": delay_ms})


def reschedule_by_filter(doors: Doors, topic: str, delay_ms: int) -> Any:
    doors.post(topic, {"body": "x", "delay_ms": 60_000})
    body = {"filter": {"state": "waiting"}, "delay_ms": delay_ms}
    return doors.post(topic, body, call="messages:reschedule")


def bulk_nack(doors: Doors, topic: str, delay_ms: int) -> Any:
    lease = int(doors.receipt(topic)[:16], 16)
    fields = {"v": 1, "n": 0, "lease": lease, "all": True, "delay_ms": delay_ms}
    return doors.broker.bulk(f"/v1/topics/{topic}/nack", fields)


def camellia(doors: Doors, topic: str, delay_ms: int) -> Any:
    form = urlencode({"topic": topic, "msg": "x", "delayMillis": delay_ms}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return doors.broker.call("POST", "/camellia/delayQueue/sendMsg", form, headers)


def sdk_nack(doors: Doors, topic: str, delay_ms: int) -> Any:
    doors.client.send(topic, "x")
    got = doors.client.receive(topic, wait=timedelta(seconds=5))
    return doors.client.nack(got, delay=span_of(delay_ms))


def bulk_wire(delay_ms: int) -> bytes:
    column = np.array([5, delay_ms], "<i8").tobytes()
    wire: bytes = msgpack.packb(
        {"v": 1, "n": 2, "body_size": 1, "bodies": b"xy", "delay_ms": column}
    )
    return wire


def arrow_wire(delay_ms: int) -> bytes:
    return stream(one(delay_ms=pa.array([5, delay_ms], pa.int64())))


def msgpack_wire(delay_ms: int) -> bytes:
    wire: bytes = msgpack.packb({"body": b"x", "delay_ms": delay_ms})
    return wire


SENDS: dict[str, Callable[[Doors, str, int], Any]] = {
    "JSON": lambda doors, topic, ms: doors.post(topic, {"body": "x", "delay_ms": ms}),
    "array": lambda doors, topic, ms: doors.post(topic, [{"body": "x", "delay_ms": ms}]),
    "key": lambda doors, topic, ms: doors.post(
        topic, {"body": "x", "delay_ms": ms}, Idempotency_Key=topic
    ),
    "msgpack": lambda doors, topic, ms: doors.post(topic, msgpack_wire(ms), Content_Type=MSGPACK),
    "bulk": lambda doors, topic, ms: doors.post(topic, bulk_wire(ms), Content_Type=BULK),
    "Arrow": lambda doors, topic, ms: doors.post(topic, arrow_wire(ms), Content_Type=ARROW),
    "part": part_send,
    "reschedule": reschedule,
    "reschedule by filter": reschedule_by_filter,
    "nack": lambda doors, topic, ms: doors.post(
        topic, {"receipts": [doors.receipt(topic)], "delay_ms": ms}, call="nack"
    ),
    "bulk nack": bulk_nack,
    "camellia": camellia,
    "DL.SEND": lambda doors, topic, ms: doors.resp.call("DL.SEND", topic, ms, "x"),
    "DL.MSEND": lambda doors, topic, ms: doors.resp.call("DL.MSEND", topic, 5, "x", ms, "x"),
    "DL.NACK": lambda doors, topic, ms: doors.resp.call(
        "DL.NACK", topic, "DELAY", ms, doors.receipt(topic)
    ),
    "SDK": lambda doors, topic, ms: doors.client.send(topic, "x", delay=span_of(ms)),
    "SDK nack": sdk_nack,
}


def refused(answer: Any) -> str | None:
    """The text of a refusal; None: it was accepted."""
    if isinstance(answer, Exception):
        return str(answer)
    if getattr(answer, "status", 200) not in (200, 202):
        return str(answer.body)
    # camellia's clients read the code in the body.
    is_camellia = isinstance(answer, Answer) and b'"code":400' in answer.body
    return str(answer.body) if is_camellia else None


@pytest.mark.parametrize("send", SENDS)
def test_a_negative_delay_means_now(doors: Doors, send: str) -> None:
    for delay_ms in NEGATIVE:
        topic = doors.topic()
        assert refused(SENDS[send](doors, topic, delay_ms)) is None, delay_ms
        found = doors.broker.post(f"/v1/topics/{topic}/receive", {"max": 2, "wait_ms": 5_000})
        assert found["messages"], delay_ms


@pytest.mark.parametrize("send", SENDS)
def test_a_delay_over_the_horizon_is_refused_by_its_name(doors: Doors, send: str) -> None:
    try:
        answer = SENDS[send](doors, doors.topic(), HORIZON_MS + 1)
    except ClientError as error:
        answer = error
    said = refused(answer) or "accepted"
    assert str(HORIZON_MS) in said
    names = {"DL.SEND": "delay-ms", "DL.MSEND": "delay-ms", "DL.NACK": "DELAY"}
    names["camellia"] = "delayMillis"
    assert names.get(send, "delay_ms") in said
    assert "deliver_at_ms -" not in said


def test_a_client_takes_a_negative_timedelta_as_now(doors: Doors) -> None:
    topic = doors.topic()
    doors.client.send(topic, "x", delay=timedelta.min)
    (message,) = doors.client.receive(topic, wait=timedelta(seconds=5))
    message.nack(delay=timedelta(seconds=-1))
    (message,) = doors.client.receive(topic, wait=timedelta(seconds=5))
    assert message.attempts == 2
