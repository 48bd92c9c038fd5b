"""Pipelines, MULTI and WATCH, and scripts by redis-py."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis

from tests.redis.servers import TIMEOUT_S, RedisServer


@pytest.mark.parametrize("transaction", [True, False])
def test_a_pipeline_answers_in_order(client: redis.Redis, transaction: bool) -> None:
    with client.pipeline(transaction=transaction) as pipe:
        pipe.set("a", 1).incr("a").lpush("l", "x", "y").lrange("l", 0, -1).get("missing")
        assert pipe.execute() == [True, 2, 2, ["y", "x"], None]


def test_a_long_pipeline(client: redis.Redis) -> None:
    with client.pipeline(transaction=False) as pipe:
        for number in range(10_000):
            pipe.rpush("l", number)
        assert pipe.execute() == list(range(1, 10_001))
    assert client.lrange("l", 0, -1) == [str(number) for number in range(10_000)]


def test_retry_loops_lose_no_increment(endpoint: RedisServer, wire: dict[str, Any]) -> None:
    """Four threads add by WATCH, GET, MULTI, SET: optimistic locking as the manuals teach it."""
    threads, rounds = 4, 25

    def add() -> None:
        with endpoint.client(**wire) as client:

            def step(pipe: redis.client.Pipeline) -> None:
                value = int(pipe.get("n") or 0)
                pipe.multi()
                pipe.set("n", value + 1)

            for _ in range(rounds):
                client.transaction(step, "n")

    workers = [threading.Thread(target=add) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(TIMEOUT_S)
    with endpoint.client() as client:
        assert client.get("n") == str(threads * rounds).encode()


def test_a_registered_script_is_loaded_when_it_is_unknown(client: redis.Redis) -> None:
    move_due = client.register_script(
        """
        local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 10)
        for _, member in ipairs(due) do
            redis.call('ZREM', KEYS[1], member)
            redis.call('RPUSH', KEYS[2], member)
        end
        return due
        """
    )
    client.zadd("delayed", {"a": 1, "b": 2, "c": 30})
    assert client.script_exists(move_due.sha) == [False]
    assert move_due(keys=["delayed", "ready"], args=[10]) == ["a", "b"]
    assert client.script_exists(move_due.sha) == [True]
    assert client.lrange("ready", 0, -1) == ["a", "b"]
    assert client.script_flush() is True
    with pytest.raises(redis.exceptions.NoScriptError):
        client.evalsha(move_due.sha, 0)
    assert move_due(keys=["delayed", "ready"], args=[100]) == ["c"]
