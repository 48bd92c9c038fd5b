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


@pytest.mark.parametrize("transaction", [True, False])
def test_one_failed_command_leaves_the_others(client: redis.Redis, transaction: bool) -> None:
    client.set("word", "w")
    with client.pipeline(transaction=transaction) as pipe:
        answers = pipe.set("a", 1).incr("word").set("b", 2).execute(raise_on_error=False)
    assert answers[0] is True
    assert isinstance(answers[1], redis.ResponseError)
    assert answers[2] is True
    assert client.mget("a", "b") == ["1", "2"]


def test_a_command_that_cannot_be_queued_ends_the_transaction(client: redis.Redis) -> None:
    with client.pipeline() as pipe:
        pipe.set("a", 1)
        pipe.execute_command("NOSUCH", "x")
        with pytest.raises(redis.ResponseError, match="unknown command"):
            pipe.execute()
    assert client.get("a") is None


def test_a_watched_key_that_changed_ends_the_transaction(
    client: redis.Redis, endpoint: RedisServer
) -> None:
    client.set("n", 1)
    with endpoint.client() as other, client.pipeline() as pipe:
        pipe.watch("n")
        assert pipe.get("n") == "1"
        other.set("n", 5)
        pipe.multi()
        pipe.set("n", 2)
        with pytest.raises(redis.WatchError):
            pipe.execute()
        assert client.get("n") == "5"
        pipe.watch("n")
        other.set("n", 6)
        pipe.unwatch()
        pipe.multi()
        assert pipe.set("n", 2).execute() == [True]
    assert client.get("n") == "2"


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


def test_scripts_in_a_pipeline(client: redis.Redis) -> None:
    script = client.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    with client.pipeline() as pipe:
        script(keys=["n"], args=[2], client=pipe)
        script(keys=["n"], args=[3], client=pipe)
        assert pipe.execute() == [2, 5]


def test_script_values_and_errors(client: redis.Redis) -> None:
    assert client.eval("return {1, 2.9, 'three', false, true, nil, 7}", 0) == [
        1,
        2,
        "three",
        None,
        1,
    ]
    assert client.eval("return redis.status_reply('FINE')", 0) == "FINE"
    assert client.eval("return cjson.encode({n = cjson.decode(ARGV[1]).n + 1})", 0, '{"n": 1}') == (
        '{"n":2}'
    )
    with pytest.raises(redis.ResponseError, match="My own"):
        client.eval("return redis.error_reply('My own')", 0)
    with pytest.raises(redis.ResponseError, match="Unknown Redis command called from script"):
        client.eval("return redis.call('nosuch')", 0)
    with pytest.raises(redis.ResponseError, match="boom"):
        client.eval("redis.call('SET', KEYS[1], 1); error('boom')", 1, "written")
    assert client.get("written") == "1"
