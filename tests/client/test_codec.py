"""Values go into messages and come out of them, by both clients and both embedded brokers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgpack
import pytest

import delaylog
from delaylog.client import Client, MessageInfo, NewMessage
from delaylog.client.codec import JsonCodec
from tests.client.any_queue import Queue, entered, got, on_a_queue

ORDER = {"number": 17, "to": "Zoë", "paid": None}


class Msgpack:
    """A codec of a program."""

    def encode(self, value: Any, /) -> bytes:
        return bytes(msgpack.packb(value))

    def decode(self, body: bytes, /) -> Any:
        return msgpack.unpackb(body)


@on_a_queue
async def test_json_goes_in_and_comes_out(queue: Queue) -> None:
    await queue.call("send", json=ORDER, id="a")
    await got(await queue.call("send_soon", json=None, id="b"))
    await queue.call("send_many", [NewMessage(json=[1], id="c"), NewMessage(value=2, id="d")])
    (peeked,) = await queue.call("peek", ids=["a"])
    assert (peeked.text, peeked.json()) == ('{"number":17,"to":"Zoë","paid":null}', ORDER)
    seen: dict[str, Any] = {}
    while len(seen) < 4:
        for message in await queue.call("receive", max=4, wait=timedelta(seconds=5)):
            assert message.json() == message.value()
            seen[message.id] = message.json()
    assert seen == {"a": ORDER, "b": None, "c": [1], "d": 2}


@on_a_queue
async def test_what_has_no_content_or_two_is_refused(queue: Queue) -> None:
    with pytest.raises(TypeError, match="a message has a body, json= or value="):
        await queue.call("send")
    with pytest.raises(ValueError, match="give one of body, json and value"):
        await queue.call("send", "x", json=1)
    with pytest.raises(TypeError, match="not dict: give other values as json="):
        await queue.call("send", ORDER)


@pytest.mark.parametrize("embedded", [delaylog.open, delaylog.open_async])
async def test_a_codec_of_the_program_encodes_values(
    two_brokers: tuple[str, str], make: Any, topic: str, tmp_path: Path, embedded: Any
) -> None:
    async def scene(client: Any) -> None:
        await got(client.send(topic, value=ORDER))
        await got(client.send_many(topic, [NewMessage(value=(1, b"x")), NewMessage(json=3)]))
        values: list[Any] = []
        while len(values) < 3:
            messages = await got(client.receive(topic, max=3, wait=timedelta(seconds=5)))
            values += [m.json() if m.body == b"3" else m.value() for m in messages]
        assert values == [ORDER, [1, b"x"], 3]

    async with make(two_brokers[0], codec=Msgpack()) as client:
        await scene(client)
    async with entered(embedded(tmp_path / "f", codec=Msgpack())) as opened:
        await scene(opened)


def test_what_is_no_codec_is_refused(tmp_path: Path) -> None:
    for wrong in (JsonCodec, "json", None, object()):
        with pytest.raises(TypeError, match="a codec has encode"):
            Client("http://127.0.0.1:9", codec=wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="a codec has encode"):
            delaylog.open(tmp_path / "f", codec=wrong)  # type: ignore[arg-type]


def test_a_body_that_was_not_asked_for_has_no_text() -> None:
    info = MessageInfo.of({"id": "a", "deliver_at_ms": 1, "attempts": 0})
    for read in (info.json, lambda: info.text):
        with pytest.raises(ValueError, match="call with bodies=True"):
            read()
