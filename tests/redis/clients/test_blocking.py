"""Clients that wait: woken at once, in the order they came, never before their time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis

from tests.redis.servers import TIMEOUT_S, RedisServer
from tests.waiting import await_that

WAIT_S = 0.4


def blocked(client: redis.Redis, count: int) -> None:
    """Return once so many clients wait."""
    await_that(lambda: client.info("clients")["blocked_clients"] == count, seconds=TIMEOUT_S)


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.blpop("q", timeout=WAIT_S),
        lambda client: client.brpop(["q", "other"], timeout=WAIT_S),
        lambda client: client.blmove("q", "to", WAIT_S),
        lambda client: client.brpoplpush("q", "to", timeout=WAIT_S),
        lambda client: client.bzpopmin("z", timeout=WAIT_S),
        lambda client: client.bzpopmax("z", timeout=WAIT_S),
        lambda client: client.xread({"s": "$"}, block=int(WAIT_S * 1000)),
    ],
    ids=["blpop", "brpop", "blmove", "brpoplpush", "bzpopmin", "bzpopmax", "xread"],
)
def test_waiting_in_vain_takes_its_time(
    client: redis.Redis, call: Callable[[redis.Redis], Any]
) -> None:
    took: list[float] = []
    for _ in range(3):
        begin = time.monotonic()
        assert not call(client)
        took.append(time.monotonic() - begin)
        assert took[-1] >= WAIT_S
        if took[-1] < WAIT_S + 2:
            return
    # Once it may have been the machine.
    raise AssertionError(f"it waited {took} seconds each time")


def test_who_waited_longest_is_served_first(endpoint: RedisServer, wire: dict[str, Any]) -> None:
    with ThreadPoolExecutor(3) as pool, endpoint.client(decode_responses=True, **wire) as client:
        waiting: list[Future[Any]] = []
        for count in range(3):
            other = endpoint.client(decode_responses=True, **wire)
            waiting.append(pool.submit(other.blpop, "q", 20))
            blocked(client, count + 1)
        assert client.rpush("q", "a", "b", "c") == 3
        assert [tuple(future.result(TIMEOUT_S)) for future in waiting] == [
            ("q", "a"),
            ("q", "b"),
            ("q", "c"),
        ]
        assert client.exists("q") == 0


def test_a_transaction_and_a_script_wake_when_they_are_done(
    endpoint: RedisServer, wire: dict[str, Any]
) -> None:
    with ThreadPoolExecutor(1) as pool, endpoint.client(decode_responses=True, **wire) as client:
        other = endpoint.client(decode_responses=True, **wire)
        future = pool.submit(other.blpop, "q", 20)
        blocked(client, 1)
        with client.pipeline() as pipe:
            assert pipe.rpush("q", "gone").delete("q").rpush("q", "seen").execute() == [1, 1, 1]
        assert tuple(future.result(TIMEOUT_S)) == ("q", "seen")
        future = pool.submit(other.bzpopmin, "z", 20)
        blocked(client, 1)
        client.eval("redis.call('ZADD', KEYS[1], 2, 'b', 1, 'a')", 1, "z")
        assert tuple(future.result(TIMEOUT_S)) == ("z", "a", 1.0)
        future = pool.submit(other.xread, {"s": "$"}, None, 20_000)
        blocked(client, 1)
        entry = client.xadd("s", {"n": 1})
        assert entry in str(future.result(TIMEOUT_S))


def test_inside_a_transaction_nobody_waits(client: redis.Redis) -> None:
    begin = time.monotonic()
    with client.pipeline() as pipe:
        assert pipe.blpop("q", timeout=20).execute() == [None]
    assert time.monotonic() - begin < 5


def test_a_client_that_left_takes_nothing(endpoint: RedisServer, wire: dict[str, Any]) -> None:
    with endpoint.client(decode_responses=True, **wire) as client:
        leaver = endpoint.client(retry=None, **wire)
        connection = leaver.connection_pool.get_connection()
        connection.send_command("BLPOP", "q", 20)
        blocked(client, 1)
        connection.disconnect()
        blocked(client, 0)
        client.rpush("q", "kept")
        assert client.lrange("q", 0, -1) == ["kept"]


def test_a_queue_with_many_on_both_sides(endpoint: RedisServer, wire: dict[str, Any]) -> None:
    """Each item is taken once, whoever takes it."""
    producers, consumers, each = 3, 4, 200
    taken: list[list[bytes]] = [[] for _ in range(consumers)]

    def produce(index: int) -> None:
        with endpoint.client(**wire) as client:
            for number in range(each):
                client.lpush("q", f"{index}:{number}")

    def consume(index: int) -> None:
        with endpoint.client(**wire) as client:
            while (got := client.brpop("q", timeout=TIMEOUT_S)) and got[1] != b"stop":
                taken[index].append(got[1])

    sides = [threading.Thread(target=consume, args=(index,)) for index in range(consumers)]
    makers = [threading.Thread(target=produce, args=(index,)) for index in range(producers)]
    for thread in sides + makers:
        thread.start()
    for thread in makers:
        thread.join(TIMEOUT_S)
    with endpoint.client() as client:
        client.lpush("q", *["stop"] * consumers)
    for thread in sides:
        thread.join(TIMEOUT_S)
    everything = [item for part in taken for item in part]
    wanted = [f"{index}:{number}".encode() for index in range(producers) for number in range(each)]
    assert sorted(everything) == sorted(wanted)
    for part in taken:
        for index in range(producers):
            mine = [int(item.split(b":")[1]) for item in part if item.startswith(b"%d:" % index)]
            assert mine == sorted(mine)
