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
from tests.broker.conftest import MSGPACK, Broker
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


def json_send(doors: Doors, topic: str, delay_ms: int) -> Any:
    return doors.broker.call(
        "POST", f"/v1/topics/{topic}/messages", {"body": "x", "delay_ms": delay_ms}
    )


def array_send(doors: Doors, topic: str, delay_ms: int) -> Any:
    body = [{"body": "x", "delay_ms": delay_ms}]
    return doors.broker.call("POST", f"/v1/topics/{topic}/messages", body)


def keyed_send(doors: Doors, topic: str, delay_ms: int) -> Any:
    body, headers = {"body": "x", "delay_ms": delay_ms}, {"Idempotency-Key": topic}
    return doors.broker.call("POST", f"/v1/topics/{topic}/messages", body, headers)


def msgpack_send(doors: Doors, topic: str, delay_ms: int) -> Any:
    wire = msgpack.packb({"body": b"x", "delay_ms": delay_ms})
    path, headers = f"/v1/topics/{topic}/messages", {"Content-Type": MSGPACK}
    return doors.broker.call("POST", path, wire, headers)


def bulk_send(doors: Doors, topic: str, delay_ms: int) -> Any:
    column = np.array([5, delay_ms], "<i8").tobytes()
    fields = {"v": 1, "n": 2, "body_size": 1, "bodies": b"xy", "delay_ms": column}
    return doors.broker.bulk(f"/v1/topics/{topic}/messages", fields)


def arrow_send(doors: Doors, topic: str, delay_ms: int) -> Any:
    wire = stream(one(delay_ms=pa.array([5, delay_ms], pa.int64())))
    path, headers = f"/v1/topics/{topic}/messages", {"Content-Type": ARROW}
    return doors.broker.call("POST", path, wire, headers)


def part_send(doors: Doors, topic: str, delay_ms: int) -> Any:
    doors.broker.post("/v1/transactions", {"transaction": topic})
    fields = {"v": 1, "n": 1, "body_size": 1, "bodies": b"x", "delay_ms": delay_ms}
    staged = doors.broker.bulk(f"/v1/transactions/{topic}/parts?topic={topic}&part=0", fields)
    if staged.status != 200:
        return staged
    winners = [{"producer": "", "part": 0, "attempt": 0, "rows": 1}]
    return doors.broker.call("POST", f"/v1/transactions/{topic}/commit", {"winners": winners})


def reschedule(doors: Doors, topic: str, delay_ms: int) -> Any:
    json_send(doors, topic, 60_000)
    found = doors.broker.all_pages(f"/v1/topics/{topic}/messages")
    path = f"/v1/topics/{topic}/messages/{found[0]['id']}"
    return doors.broker.call("PATCH", path, {"delay_ms": delay_ms})


def reschedule_by_filter(doors: Doors, topic: str, delay_ms: int) -> Any:
    json_send(doors, topic, 60_000)
    body = {"filter": {"state": "waiting"}, "delay_ms": delay_ms}
    return doors.broker.call("POST", f"/v1/topics/{topic}/messages:reschedule", body)


def json_nack(doors: Doors, topic: str, delay_ms: int) -> Any:
    body = {"receipts": [doors.receipt(topic)], "delay_ms": delay_ms}
    return doors.broker.call("POST", f"/v1/topics/{topic}/nack", body)


def bulk_nack(doors: Doors, topic: str, delay_ms: int) -> Any:
    lease = int(doors.receipt(topic)[:16], 16)
    fields = {"v": 1, "n": 0, "lease": lease, "all": True, "delay_ms": delay_ms}
    return doors.broker.bulk(f"/v1/topics/{topic}/nack", fields)


def camellia_send(doors: Doors, topic: str, delay_ms: int) -> Any:
    form = urlencode({"topic": topic, "msg": "x", "delayMillis": delay_ms}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return doors.broker.call("POST", "/camellia/delayQueue/sendMsg", form, headers)


def dl_send(doors: Doors, topic: str, delay_ms: int) -> Any:
    return doors.resp.call("DL.SEND", topic, delay_ms, "x")


def dl_msend(doors: Doors, topic: str, delay_ms: int) -> Any:
    return doors.resp.call("DL.MSEND", topic, 5, "x", delay_ms, "x")


def dl_nack(doors: Doors, topic: str, delay_ms: int) -> Any:
    return doors.resp.call("DL.NACK", topic, "DELAY", delay_ms, doors.receipt(topic))


def sdk_send(doors: Doors, topic: str, delay_ms: int) -> Any:
    return doors.client.send(topic, "x", delay=span_of(delay_ms))


def sdk_nack(doors: Doors, topic: str, delay_ms: int) -> Any:
    doors.client.send(topic, "x")
    return doors.client.nack(
        doors.client.receive(topic, wait=timedelta(seconds=5)),
        delay=span_of(delay_ms),
    )


SENDS = (
    *(json_send, array_send, keyed_send, msgpack_send, bulk_send, arrow_send, part_send),
    *(reschedule, reschedule_by_filter, json_nack, bulk_nack, camellia_send),
    *(dl_send, dl_msend, dl_nack, sdk_send, sdk_nack),
)


def refused(answer: Any) -> str | None:
    """The text of a refusal; None: it was accepted."""
    if isinstance(answer, Exception):
        return str(answer)
    if getattr(answer, "status", 200) not in (200, 202):
        return str(answer.body)
    # camellia's clients read the code in the body.
    is_camellia = isinstance(answer, Answer) and b'"code":400' in answer.body
    return str(answer.body) if is_camellia else None


@pytest.mark.parametrize("send", SENDS, ids=lambda each: each.__name__)
def test_a_negative_delay_means_now(doors: Doors, send: Callable[..., Any]) -> None:
    for delay_ms in NEGATIVE:
        topic = doors.topic()
        assert refused(send(doors, topic, delay_ms)) is None, delay_ms
        found = doors.broker.post(f"/v1/topics/{topic}/receive", {"max": 2, "wait_ms": 5_000})
        assert found["messages"], delay_ms


@pytest.mark.parametrize("send", SENDS, ids=lambda each: each.__name__)
def test_a_delay_over_the_horizon_is_refused_by_its_name(
    doors: Doors, send: Callable[..., Any]
) -> None:
    try:
        answer = send(doors, doors.topic(), HORIZON_MS + 1)
    except ClientError as error:
        answer = error
    said = refused(answer) or "accepted"
    assert str(HORIZON_MS) in said
    names = {"dl_send": "delay-ms", "dl_msend": "delay-ms", "dl_nack": "DELAY"}
    names["camellia_send"] = "delayMillis"
    assert names.get(send.__name__, "delay_ms") in said
    assert "deliver_at_ms -" not in said


def test_a_client_takes_a_negative_timedelta_as_now(doors: Doors) -> None:
    topic = doors.topic()
    doors.client.send(topic, "x", delay=timedelta.min)
    (message,) = doors.client.receive(topic, wait=timedelta(seconds=5))
    message.nack(delay=timedelta(seconds=-1))
    (message,) = doors.client.receive(topic, wait=timedelta(seconds=5))
    assert message.attempts == 2
