"""Client and AsyncClient on one real broker, by the same scenes."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from delaylog.client import (
    BadRequest,
    ClientError,
    Conflict,
    NotFound,
    NotReached,
    Settled,
    TopicSettings,
)
from delaylog.client.wire.bulk import ref_to_id
from tests.client.scenes import bodies, drained

DONE, GONE, UNKNOWN = Settled.DONE, Settled.GONE, Settled.UNKNOWN
FAR_MS = 3_600_000


async def test_a_message_with_all_that_it_may_have(make: Any, two_brokers: Any, topic: str) -> None:
    async with make(two_brokers[0]) as client:
        columns: dict[str, Any] = {"ids": ["own", ""], "keys": ["k", ""], "priority": [3, 0]}
        columns |= {"tags": [["a", "b"], []], "headers": [{"h": "é"}, {}]}
        answer = await client.send_columns(topic, [b"one", b"two"], delay_ms=0, **columns)
        assert (answer.n, answer.shard) == (2, two_brokers[0])
        one, two = sorted(await drained(client, topic, 2), key=lambda message: message.body)
        assert (one.id, one.key, one.tags, one.headers) == ("own", "k", ("a", "b"), {"h": "é"})
        assert (one.priority, one.attempts, one.text) == (3, 1, "one")
        assert (two.key, two.tags, two.headers, two.priority) == (None, (), {}, 0)
        assert two.id.startswith("~")
        assert (two.ref, two.id) == (int(answer.refs[1]), ref_to_id(two.ref))
        assert await client.ack([two, one]) == [DONE, DONE]
        assert await client.ack(one) == [GONE]


async def test_https_to_a_broker_without_tls(make: Any, two_brokers: Any) -> None:
    async with make(
        two_brokers[0].replace("http:", "https:"), timeout=timedelta(seconds=5)
    ) as client:
        with pytest.raises(NotReached, match=r"no TLS there .*: is it an http address"):
            await client.topics()


async def test_messages_by_their_ids(make: Any, two_brokers: Any, topic: str) -> None:
    async with make(two_brokers[0]) as client:
        await client.send_columns(topic, [b"x"], ids=["own"], delay_ms=FAR_MS, tags=[["t"]])
        seen = await client.get(topic, "own", life=True)
        assert (seen.state, seen.body, seen.tags) == ("waiting", b"x", ("t",))
        assert seen.life[0]["event"] == "sent"
        await client.reschedule(topic, "own", delay=timedelta(0))
        (message,) = await drained(client, topic, 1, ids=["own"])
        assert await client.settle_ids(topic, "ack", ["own", "other"]) == [DONE, UNKNOWN]
        assert await client.ack(message) == [GONE]
        with pytest.raises(ValueError, match="time"):
            await client.reschedule(topic, "own")


async def test_lists_of_more_than_a_page(make: Any, two_brokers: Any, topic: str) -> None:
    """And bodies of dead letters."""
    async with make(two_brokers[0]) as client:
        await client.put_topic(topic, TopicSettings(max_retry=0))
        due_ms = np.arange(1_200) + time.time_ns() // 1_000_000 + FAR_MS
        await client.send_columns(topic, [b"%d" % n for n in range(1_200)], deliver_at_ms=due_ms)
        listed = [each async for each in client.browse(topic, state=["waiting", "ready"])]
        assert [each.deliver_at_ms for each in listed] == due_ms.tolist()
        assert listed[0].body is None
        await client.send_columns(topic, [b"dies"], ids=["d"])
        await client.nack(await drained(client, topic, 1))
        (dead,) = [each async for each in client.dead(topic, bodies=True)]
        assert (dead.id, dead.state, dead.body) == ("d", "dead", b"dies")


async def test_topics_and_groups(make: Any, two_brokers: Any, topic: str) -> None:
    async with make(two_brokers[0], namespace=topic) as client:
        made = await client.put_topic("a", {"lease_ms": 5_000, "slots": 4})
        assert (made.settings.lease, made.settings.slots) == (timedelta(seconds=5), 4)
        with pytest.raises(Conflict):
            await client.put_topic("a", {"slots": 8})
        assert (await client.put_group("a", "g")).group == "g"
        assert [group.group for group in await client.groups("a")] == ["default", "g"]
        await client.send_columns("a", [b"1", b"2"], delay_ms=FAR_MS)
        assert [each.topic for each in await client.topics()] == ["a"]
        assert (await client.forecast("a", minutes=1, hours=3)).hours[1].count <= 2
        assert (await client.stats("a", group="g", delay_buckets=True)).delay_buckets
        await client.pause("a")
        assert (await client.get_topic("a")).paused
        await client.drop_topic("a", force=True)
        with pytest.raises(NotFound) as caught:
            await client.get_topic("a")
        assert caught.value.request_id, "the broker's log names the request"


async def test_transactions(make: Any, two_brokers: Any, topic: str) -> None:
    """All of it, or nothing; a body that is refused leaves the others as they are."""
    async with make(two_brokers[0]) as client:
        async with client.transaction() as together:
            with pytest.raises(TypeError, match="bodies are a list, not one str"):
                await together.stage(topic, "abc")
            assert await together.stage(topic, []) == 0
            assert await together.stage(topic, [b"a", b"b"]) == 2
            assert await together.stage(topic, [b"c"], ids=["c"]) == 1
            assert await client.receive(topic) == []
        assert bodies(await drained(client, topic, 3)) == [b"a", b"b", b"c"]
        together = None

        async def fail() -> None:
            nonlocal together
            async with client.transaction("tx-" + topic) as together:
                await together.stage(topic, [b"never"])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert together is not None
        with pytest.raises(ClientError, match="not open"):
            await together.stage(topic, [b"never"])
        assert await client.receive(topic, wait=timedelta(milliseconds=50)) == []
        async with client.transaction():
            pass


def test_numbers_that_cannot_be_are_refused_in_the_same_way(
    make: Any, two_brokers: Any, topic: str
) -> None:
    """By the broker, which names its bound, or here where no body can hold them; shards or not."""

    async def scene(*urls: str) -> None:
        async with make(*urls) as client:
            await client.send_columns(topic, [b"x"])
            refused: list[tuple[dict[str, Any], str]] = [
                ({"max": 0}, "max must lie from 1 to 10000, not 0"),
                ({"max": -1, "wait": timedelta(milliseconds=100)}, "max must lie"),
                ({"max": 20_000}, "max must lie"),
                ({"wait": timedelta(hours=1)}, "wait_ms must lie from 0 to 60000, not 3600000"),
                ({"wait": timedelta.max}, "wait_ms must lie"),
                ({"lease": timedelta(0)}, "lease_ms must lie"),
                ({"lease": timedelta.max}, "lease_ms must lie"),
            ]
            for wish, said in refused:
                with pytest.raises(BadRequest, match=said) as caught:
                    await client.receive(topic, **wish)
                assert caught.value.field == said.split()[0]
            with pytest.raises(ValueError, match=f"max lies from .* not {2**64}"):
                await client.receive(topic, max=2**64)
            with pytest.raises(TypeError, match="wait is a timedelta, not str"):
                await client.receive(topic, wait="1")
            with pytest.raises(ValueError, match="wait is not negative: -1 day"):
                await client.receive(topic, wait=timedelta(-1))
            with pytest.raises(BadRequest, match="max must be"):
                await client.receive(topic, max="1")
            (message,) = await drained(client, topic, 1)
            with pytest.raises(TypeError, match="lease is a timedelta, not NoneType"):
                await client.extend(message, lease=None)
            with pytest.raises(BadRequest, match="lease_ms must lie"):
                await client.extend(message, lease=timedelta.max)
            with pytest.raises(BadRequest, match="delay_ms is over the horizon"):
                await client.nack(message, delay=timedelta.max)
            with pytest.raises(ValueError, match="lease is not negative: -1 day"):
                await client.extend(message, lease=-timedelta(milliseconds=1))
            assert await client.ack(message) == [DONE]

    asyncio.run(scene(two_brokers[0]))
    asyncio.run(scene(*two_brokers))
