"""A message's own backoff on every face that sends: it is stored, shown, and waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import msgpack
import pyarrow as pa
import pytest

from delaylog.broker.calls.forms.arrow_stream import ARROW
from delaylog.broker.embedded.opening import open_broker
from delaylog.client import AsyncClient, Client, NewMessage
from delaylog.client.wire.bulk import BULK_TYPE, encode_send
from tests.broker.web.test_arrow_bodies import stream

BACKOFF = {"first_ms": 700, "factor": 1.5}


def in_json(broker: Any, topic: str) -> None:
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "id": "m", "backoff": BACKOFF})


def in_msgpack(broker: Any, topic: str) -> None:
    body = msgpack.packb({"body": "x", "id": "m", "backoff": BACKOFF})
    kind = {"Content-Type": "application/msgpack"}
    broker.call("POST", f"/v1/topics/{topic}/messages", body, kind)


def in_bulk(broker: Any, topic: str) -> None:
    headers = [{"h": "v"}, {}]
    body = encode_send(
        ["x", "y"], delay_ms=0, ids=["m", "n"], headers=headers, backoff=[BACKOFF, None]
    )
    broker.call("POST", f"/v1/topics/{topic}/messages", body, {"Content-Type": BULK_TYPE})


def in_arrow(broker: Any, topic: str) -> None:
    columns = {"value": pa.array(["x"]), "delay_ms": pa.array([0]), "id": pa.array(["m"])}
    body = stream(pa.record_batch(columns | {"backoff": pa.array([BACKOFF])}))
    broker.call("POST", f"/v1/topics/{topic}/messages", body, {"Content-Type": ARROW})


def by_camellia(broker: Any, topic: str) -> None:
    values = {"topic": topic, "msg": "x", "msgId": "m", "delayMillis": 0}
    form = urlencode(values | {"backoff": '{"first_ms": 700, "factor": 1.5}'}).encode()
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = broker.call("POST", "/camellia/delayQueue/sendMsg", form, kind)
    assert answer.json["code"] == 200, answer


def by_client(broker: Any, topic: str) -> None:
    with Client(broker.url) as client:
        client.send(topic, "x", id="m", backoff=BACKOFF)


def by_client_soon(broker: Any, topic: str) -> None:
    with Client(broker.url) as client:
        client.send_soon(topic, "x", id="m", backoff=BACKOFF)


def by_client_in_many(broker: Any, topic: str) -> None:
    with Client(broker.url) as client:
        client.send_many(topic, ["y", NewMessage("x", id="m", backoff=BACKOFF)])


def by_async_client(broker: Any, topic: str) -> None:
    async def send() -> None:
        async with AsyncClient(broker.url) as client:
            await client.send(topic, "x", id="m", backoff=BACKOFF)

    asyncio.run(send())


FACES: list[Callable[[Any, str], None]] = [
    in_json,
    in_msgpack,
    in_bulk,
    in_arrow,
    by_camellia,
    by_client,
    by_client_soon,
    by_client_in_many,
    by_async_client,
]


@pytest.mark.parametrize("send", FACES)
def test_a_backoff_is_kept_and_waited_for(
    broker: Any, topic: str, send: Callable[[Any, str], None]
) -> None:
    send(broker, topic)
    path = f"/v1/topics/{topic}"
    found = broker.call("GET", f"{path}/messages/m").json
    assert found["backoff"] == BACKOFF
    received = broker.post(f"{path}/receive", {"wait_ms": 5_000, "ids": ["m"]})
    (message,) = received["messages"]
    nacked_ms = time.time() * 1000
    broker.post(f"{path}/nack", {"receipts": [message["receipt"]]})
    due_ms = broker.call("GET", f"{path}/messages/m").json["deliver_at_ms"]
    # The topic's jitter shortens it by up to a fifth.
    assert nacked_ms + 500 <= due_ms <= nacked_ms + 2_000


@pytest.mark.parametrize("wait", [True, False])
def test_an_embedded_broker_takes_it_too(tmp_path: Any, wait: bool) -> None:
    with open_broker(tmp_path / "data") as broker:
        broker.send("t", "x", id="m", backoff=BACKOFF, wait=wait)
        broker.send_columns("t", ["y"], ids=["n"], backoff=[{"first_ms": 5}])
        assert broker.get("t", "m").backoff == BACKOFF
        assert broker.get("t", "n").backoff == {"first_ms": 5}
