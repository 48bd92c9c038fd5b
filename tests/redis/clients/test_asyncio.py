"""redis-py in asyncio: the same connection from a loop, with many tasks and pushes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis
import redis.asyncio

from tests.redis.servers import TIMEOUT_S, RedisServer


@pytest.fixture
def client(endpoint: RedisServer, wire: dict[str, Any]) -> redis.asyncio.Redis:
    """Entered and left in the loop of the test."""
    return redis.asyncio.Redis(
        host=endpoint.host, port=endpoint.port, decode_responses=True, **wire
    )


async def soon() -> AsyncIterator[None]:
    """A moment to look again, for as long as a test may take."""
    for _ in range(TIMEOUT_S * 100):
        yield
        await asyncio.sleep(0.01)
    raise AssertionError("it never happened")


async def test_values(client: redis.asyncio.Redis) -> None:
    assert await client.set("k", "v", px=60_000) is True
    assert await client.get("k") == "v"
    await client.hset("h", mapping={"a": 1, "b": 2})
    assert await client.hgetall("h") == {"a": "1", "b": "2"}
    await client.zadd("z", {"a": 1, "b": 2})
    assert await client.zrange("z", 0, -1) == ["a", "b"]
    await client.sadd("e", "x", "y")
    assert await client.smembers("e") == {"x", "y"}
    assert sorted([key async for key in client.scan_iter()]) == ["e", "h", "k", "z"]


async def test_pipelines_transactions_and_scripts(client: redis.asyncio.Redis) -> None:
    async with client.pipeline(transaction=True) as pipe:
        assert await pipe.set("n", 1).incr("n").execute() == [True, 2]
    async with client.pipeline() as pipe:
        await pipe.watch("n")
        await client.incr("n")
        pipe.multi()
        pipe.set("n", 0)
        with pytest.raises(redis.WatchError):
            await pipe.execute()
    script = client.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    assert await script(keys=["n"], args=[4]) == 7


async def test_tasks_share_one_client(client: redis.asyncio.Redis) -> None:
    numbers = await asyncio.gather(*[client.incr("n") for _ in range(90)])
    assert sorted(numbers) == list(range(1, 91))


async def test_blocking_pops(client: redis.asyncio.Redis) -> None:
    waiting = [asyncio.create_task(client.blpop("q", timeout=20)) for _ in range(5)]
    async for _ in soon():
        if (await client.info("clients"))["blocked_clients"] == len(waiting):
            break
    await client.rpush("q", *range(5))
    got = sorted([tuple(pair) for pair in await asyncio.gather(*waiting)])
    assert got == [("q", str(number)) for number in range(5)]
    begin = time.monotonic()
    assert await client.bzpopmin("z", timeout=0.3) is None
    assert time.monotonic() - begin >= 0.3


async def test_pubsub(client: redis.asyncio.Redis) -> None:
    async with client.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe("c")
        await pubsub.psubscribe("c*")
        async for _ in soon():
            if await client.publish("c", "probe") == 2:
                break
        kinds = set()
        async for message in pubsub.listen():
            kinds.add((message["type"], message["data"]))
            if len(kinds) == 2:
                break
        assert kinds == {("message", "probe"), ("pmessage", "probe")}


async def test_locks(client: redis.asyncio.Redis) -> None:
    inside: list[int] = []

    async def work(number: int) -> None:
        async with client.lock("l", timeout=30, sleep=0.005):
            inside.append(number)
            assert inside == [number]
            await asyncio.sleep(0.002)
            inside.remove(number)

    await asyncio.gather(*[work(number) for number in range(10)])
