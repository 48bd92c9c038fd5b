"""redis-benchmark: every test of its default set runs to the end, alone and pipelined.

How fast is no matter here; bench/ measures.
"""

from __future__ import annotations

import csv
import io
import subprocess

import pytest

from tests.redis.servers import RedisServer

REQUESTS = 2000
DEFAULT_SET = [
    "PING_INLINE",
    "PING_MBULK",
    "SET",
    "GET",
    "INCR",
    "LPUSH",
    "RPUSH",
    "LPOP",
    "RPOP",
    "SADD",
    "HSET",
    "SPOP",
    "ZADD",
    "ZPOPMIN",
    "LPUSH (needed to benchmark LRANGE)",
    "LRANGE_100 (first 100 elements)",
    "LRANGE_300 (first 300 elements)",
    "LRANGE_500 (first 500 elements)",
    "LRANGE_600 (first 600 elements)",
    "MSET (10 keys)",
]


def benchmark(server: RedisServer, *options: str) -> subprocess.CompletedProcess[str]:
    """One run; it must end by itself with status 0 and say nothing of errors."""
    done = subprocess.run(
        [
            server.programs / "redis-benchmark",
            *("-h", server.host, "-p", str(server.port), "-n", str(REQUESTS), *options),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "rror" not in done.stdout, done.stdout
    return done


@pytest.mark.parametrize("options", [(), ("-P", "16")], ids=["alone", "pipelined"])
def test_the_default_set(endpoint: RedisServer, options: tuple[str, ...]) -> None:
    rows = list(csv.DictReader(io.StringIO(benchmark(endpoint, "--csv", *options).stdout)))
    assert [row["test"] for row in rows] == DEFAULT_SET
    assert all(float(row["rps"]) > 0 for row in rows)
    with endpoint.client() as client:
        assert client.get("counter:__rand_int__") == str(REQUESTS).encode()
        assert client.llen("mylist") == REQUESTS


def test_random_keys_in_resp3_and_a_script(endpoint: RedisServer) -> None:
    benchmark(endpoint, "-q", "-3", "-t", "set,get", "-r", "500", "-d", "1024", "-c", "20")
    with endpoint.client() as client:
        keys = client.keys("key:*")
        assert 400 < len(keys) <= 500
        assert client.strlen(keys[0]) == 1024
    benchmark(endpoint, "-q", "EVAL", "return redis.call('INCR', KEYS[1])", "1", "n")
    with endpoint.client() as client:
        assert client.get("n") == str(REQUESTS).encode()
