"""Values as redis-py hands them over, in both protocols: each type, scans, expiry, large ones.

`tests/redis/differential` compares the replies of all commands byte by byte.
"""

from __future__ import annotations

import time
from math import inf
from typing import Any

import pytest
import redis

from tests.redis.servers import RedisServer


def test_each_type(client: redis.Redis) -> None:
    client.hset("hash", mapping={"state": "new", "tries": 0})
    assert client.hgetall("hash") == {"state": "new", "tries": "0"}
    client.rpush("list", "b", "c")
    assert client.lrange("list", 0, -1) == ["b", "c"]
    client.sadd("set", 1, 2)
    assert client.smembers("set") == {"1", "2"}
    client.zadd("due", {"a": 1, "b": 2.5, "far": "inf"})
    due = client.zrange("due", 0, -1, withscores=True)
    assert [(member, score) for member, score in due] == [("a", 1), ("b", 2.5), ("far", inf)]
    assert client.zscore("due", "missing") is None
    entry = client.xadd("stream", {"n": 1})
    assert client.xrange("stream") == [(entry, {"n": "1"})]
    with pytest.raises(redis.ResponseError, match=r"^WRONGTYPE|^Operation against a key"):
        client.get("list")


def test_scanning_sees_every_key_once(client: redis.Redis) -> None:
    client.mset({f"job:{n}": n for n in range(300)})
    client.hset("other", "a", 1)
    assert sorted(client.scan_iter(count=7)) == sorted([*client.keys("job:*"), "other"])
    assert len(list(client.scan_iter(match="job:1??"))) == 100
    assert list(client.scan_iter(_type="hash")) == ["other"]
    assert client.dbsize() == 301


def test_expiry_is_not_early(client: redis.Redis) -> None:
    begin = time.monotonic()
    client.set("short", 1, px=300)
    client.psetex("shorter", 150, 1)
    client.set("kept", 1, ex=100)
    assert 90 < client.ttl("kept") <= 100
    assert client.persist("kept") in (1, True)
    assert client.ttl("kept") == -1
    assert client.ttl("missing") == -2
    while client.get("short") is not None:
        assert time.monotonic() < begin + 10
        time.sleep(0.005)
    assert time.monotonic() - begin >= 0.3
    assert client.exists("shorter") == 0
    assert client.get("kept") == "1"
    client.expire("kept", -1)
    assert client.exists("kept") == 0


def test_bytes_are_kept_as_they_are(endpoint: RedisServer, wire: dict[str, Any]) -> None:
    every = bytes(range(256)) + b"\r\n$5\r\n"
    with endpoint.client(**wire) as client:
        client.set(every, every * 100)
        client.hset(b"h", every, b"")
        assert client.get(every) == every * 100
        assert client.hgetall(b"h") == {every: b""}
        assert client.keys() in ([every, b"h"], [b"h", every])


def test_a_value_of_megabytes(endpoint: RedisServer, wire: dict[str, Any]) -> None:
    value = b"0123456789abcdef" * (8 << 16)
    with endpoint.client(**wire) as client:
        client.set("big", value)
        assert client.strlen("big") == len(value) == 8 << 20
        assert client.get("big") == value
