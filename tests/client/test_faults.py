"""Client and AsyncClient where answers are lost, late or refused, by the same scenes.

Servers made of aiohttp stand for brokers, where a fault has to come at a certain moment.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgpack
import pytest
from aiohttp import web

from delaylog.client import (
    AnswerLost,
    ClientError,
    Hooks,
    Settled,
    SettleFailed,
)
from tests.client.either import ThreadedClient
from tests.client.scenes import answer_of_receive, bulk, drained, hang_up, not_ready, serving

pytestmark = pytest.mark.usefixtures("no_questions")
DONE, GONE, UNKNOWN = Settled.DONE, Settled.GONE, Settled.UNKNOWN
FAR_MS = 3_600_000


async def test_a_send_is_repeated_as_it_was_until_it_is_answered(make: Any, topic: str) -> None:
    """Lost answers, no leader, a quota: the same bytes each time, so the broker adds them once."""
    seen: list[bytes] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(await request.read())
        if len(seen) == 1:
            return hang_up(request)
        if len(seen) == 2:
            return not_ready(429, "quota", **{"Retry-After": "0"})
        return bulk(n=1, refs=bytes(8), deliver_at_ms=1, result=0)

    async with serving(handle) as url, make(url, producer="p") as client:
        await client.send_columns(topic, [b"x"])
        await client.send_columns(topic, [b"x"])
    assert len(seen) == 4
    assert seen[0] == seen[1] == seen[2] != seen[3]
    fields = [msgpack.unpackb(wire) for wire in seen[2:]]
    assert fields[0]["producer"] == fields[1]["producer"]
    assert fields[0]["producer"].startswith("p-")
    assert [each["sequence"] for each in fields] == [0, 1]


class Retries(Hooks):
    def __init__(self) -> None:
        self.heard: list[tuple[str, int, str]] = []

    def on_send_retry(self, topic: str, n: int, error: Exception) -> None:
        self.heard.append((topic, n, type(error).__name__))


async def test_repeats_inside_of_a_cluster_are_told(make: Any, topic: str) -> None:
    """There is no leader, then an answer is lost; every way to send one message or many."""
    faults: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        n = msgpack.unpackb(await request.read())["n"]
        fault = faults.pop(0) if faults else ""
        if fault == "lost":
            return hang_up(request)
        if fault:
            return not_ready()
        return bulk(n=n, refs=bytes(8 * n), deliver_at_ms=1, result=0)

    async with serving(handle) as url:
        hooks = Retries()
        cluster = f"{url},{url.replace('127.0.0.1', 'localhost')}"
        async with make(cluster, hooks=[hooks]) as client:
            faults.extend(("leader", "lost"))
            assert (await client.send(topic, "x")).result == "created"
            assert hooks.heard == [(topic, 1, "NotReady"), (topic, 1, "AnswerLost")]
            hooks.heard.clear()
            faults.append("leader")
            assert len(await client.send_many(topic, ["x", "y"])) == 2
            assert hooks.heard == [(topic, 2, "NotReady")]
            if make is ThreadedClient:
                hooks.heard.clear()
                faults.append("leader")
                sending = await client.send_soon(topic, "x")
                await asyncio.to_thread(sending.result, timedelta(seconds=20))
                assert hooks.heard == [(topic, 1, "NotReady")]


async def test_a_send_whose_answer_was_lost_goes_to_no_other_shard(make: Any, topic: str) -> None:
    """There it would be added a second time."""
    seen: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        seen.append(request.host)
        return hang_up(request)

    async with serving(handle) as url:
        other = url.replace("127.0.0.1", "localhost")
        async with make(url, other, timeout=timedelta(seconds=2)) as client:
            with pytest.raises(AnswerLost):
                await client.send_columns(topic, [b"x"])
    assert len(seen) > 1
    assert len(set(seen)) == 1


async def test_gone_after_a_lost_answer_is_unknown(make: Any, topic: str) -> None:
    """The first ack may have done it: nobody knows, and it is not said to be lost."""
    acks = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal acks
        await request.read()
        if request.path.endswith("/receive"):
            return answer_of_receive(2)
        acks += 1
        if acks == 1:
            return not_ready()
        return bulk(n=2, done=1, gone=(1).to_bytes(8, "little"), unknown=b"")

    async with serving(handle) as url, make(url) as client:
        found = await client.receive(topic, max=2)
        assert await client.ack(found) == [DONE, UNKNOWN]
        assert await client.ack(found) == [DONE, GONE]


async def test_a_lost_answer_to_an_ack_is_asked_for_once_more(make: Any, topic: str) -> None:
    """Of a single broker too; when that is lost as well, nobody knows."""
    acks = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal acks
        await request.read()
        if request.path.endswith("/receive"):
            return answer_of_receive(2)
        acks += 1
        if acks in (1, 3, 4, 5):
            return hang_up(request)
        if acks == 6:
            return not_ready(507, "disk_full")
        return bulk(n=2, done=1, gone=(1).to_bytes(8, "little"), unknown=b"")

    async with serving(handle) as url, make(url) as client:
        found = await client.receive(topic, max=2)
        assert await client.ack(found) == [DONE, UNKNOWN]
        for _ in range(2):
            with pytest.raises(AnswerLost):
                await client.ack(found)
    assert acks == 6


async def test_acks_of_two_shards_of_which_one_is_gone(
    make: Any, two_brokers: Any, topic: str
) -> None:
    async def handle(request: web.Request) -> web.Response:
        await request.read()
        if not request.path.endswith("/receive"):
            return not_ready(507, "disk_full")
        return answer_of_receive(1)

    async with serving(handle) as url, make(two_brokers[0], url) as client:
        await client.send_columns(topic, [b"x"], shard=two_brokers[0])
        found: dict[str, Any] = {}
        while len(found) < 2:
            for message in await client.receive(topic, max=1, wait=timedelta(seconds=1)):
                found.setdefault(message.shard, message)
        with pytest.raises(SettleFailed) as caught:
            await client.ack([found[url], found[two_brokers[0]]])
        refused, done = caught.value.results
        assert isinstance(refused, ClientError)
        assert done is DONE


async def test_cancelling_a_receive_loses_nothing(two_brokers: Any, topic: str) -> None:
    """What its polls bring goes to the next receive."""
    from delaylog.client import AsyncClient

    async with AsyncClient(*two_brokers) as client:
        waiting = asyncio.ensure_future(client.receive(topic, max=9, wait=timedelta(seconds=5)))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        for shard in two_brokers:
            await client.send_columns(topic, [b"x"], shard=shard)
        assert [message.attempts for message in await drained(client, topic, 2)] == [1, 1]
