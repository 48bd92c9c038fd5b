"""redis-cli: what a person types, pipes in, scans and watches."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.redis.servers import RedisServer


@pytest.fixture(params=[(), ("-3",)], ids=["resp2", "resp3"])
def protocol(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """redis-cli speaks RESP2 unless it is told -3 (HELLO 3 first)."""
    return tuple(request.param)


def lines(text: str) -> list[str]:
    """What was printed, a line each."""
    return text.splitlines()


def test_one_command(endpoint: RedisServer, protocol: tuple[str, ...]) -> None:
    assert endpoint.cli(*protocol, "PING") == "PONG\n"
    assert endpoint.cli(*protocol, "SET", "k", "a b\nc", "EX", "100") == "OK\n"
    assert endpoint.cli(*protocol, "GET", "k") == "a b\nc\n"
    assert endpoint.cli(*protocol, "--no-raw", "GET", "k") == '"a b\\nc"\n'
    assert endpoint.cli(*protocol, "--no-raw", "INCR", "n") == "(integer) 1\n"
    assert endpoint.cli(*protocol, "--no-raw", "GET", "missing") == "(nil)\n"
    assert endpoint.cli(*protocol, "--json", "MGET", "n", "missing") == '["1",null]\n'
    assert endpoint.cli(*protocol, "-n", "4", "EXISTS", "k") == "0\n"


def test_types_show_in_resp3(endpoint: RedisServer) -> None:
    endpoint.cli("HSET", "h", "a", "1")
    endpoint.cli("ZADD", "z", "1.5", "m")
    endpoint.cli("SADD", "s", "x")
    assert endpoint.cli("-3", "--no-raw", "HGETALL", "h") == '1# "a" => "1"\n'
    assert endpoint.cli("-3", "--no-raw", "ZSCORE", "z", "m") == "(double) 1.5\n"
    assert endpoint.cli("-3", "--no-raw", "SMEMBERS", "s") == '1~ "x"\n'
    assert endpoint.cli("--no-raw", "HGETALL", "h") == '1) "a"\n2) "1"\n'
    assert endpoint.cli("--no-raw", "ZSCORE", "z", "m") == '"1.5"\n'


def test_a_script_of_commands_by_pipe(endpoint: RedisServer, protocol: tuple[str, ...]) -> None:
    script = """
        DEL q
        RPUSH q one "two words" 'three'
        LRANGE q 0 -1
        MULTI
        SET k 1
        INCR k
        EXEC
        MULTI
        SET k 9
        DISCARD
        GET k
        NOSUCH x
        LPUSH k 1
        GET
    """
    assert lines(endpoint.cli(*protocol, feed=script)) == [
        "0",
        "3",
        "one",
        "two words",
        "three",
        "OK",
        "QUEUED",
        "QUEUED",
        "OK",
        "2",
        "OK",
        "QUEUED",
        "OK",
        "2",
        "ERR unknown command 'NOSUCH', with args beginning with: 'x' ",
        "",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "",
        "ERR wrong number of arguments for 'get' command",
        "",
    ]


def test_the_last_argument_from_standard_input(
    endpoint: RedisServer, protocol: tuple[str, ...]
) -> None:
    blob = bytes(range(256)) * 4096
    assert endpoint.cli(*protocol, "-x", "SET", "blob", feed=blob) == "OK\n"
    assert endpoint.cli(*protocol, "STRLEN", "blob") == f"{len(blob)}\n"
    with endpoint.client() as client:
        assert client.get("blob") == blob


def test_scanning_and_biggest_keys(endpoint: RedisServer) -> None:
    with endpoint.client() as client:
        client.mset({f"job:{number}": number for number in range(200)})
        client.rpush("long", *range(50))
        client.hset("wide", mapping={str(number): number for number in range(30)})
        client.zadd("due", {"a": 1})
    scanned = lines(endpoint.cli("--scan", "--pattern", "job:*"))
    assert sorted(scanned) == sorted(f"job:{number}" for number in range(200))
    summary = endpoint.cli("--bigkeys")
    assert "Sampled 203 keys in the keyspace!" in summary
    assert "Biggest   list found '\"long\"' has 50 items" in summary
    assert "Biggest   hash found '\"wide\"' has 30 fields" in summary


def test_eval_of_a_file(endpoint: RedisServer, tmp_path: Path) -> None:
    script = tmp_path / "move.lua"
    text = "redis.call('SET', KEYS[1], ARGV[1]); return {KEYS[1], ARGV[1], #ARGV}"
    script.write_text(text)
    assert lines(endpoint.cli("--eval", str(script), "k", ",", "v", "w")) == ["k", "v", "2"]
    sha = hashlib.sha1(text.encode()).hexdigest()
    assert endpoint.cli("SCRIPT", "LOAD", text) == f"{sha}\n"
    assert lines(endpoint.cli("EVALSHA", sha, "1", "a", "b")) == ["a", "b", "1"]
    assert endpoint.cli("GET", "a") == "b\n"


def test_mass_insertion(endpoint: RedisServer) -> None:
    """--pipe: raw protocol in, and an ECHO of its own to know the end."""
    count = 20_000
    wire = b"".join(
        b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$1\r\nv\r\n" % (len(key), key)
        for key in (b"key:%d" % number for number in range(count))
    )
    out = endpoint.cli("--pipe", feed=wire)
    assert f"errors: 0, replies: {count}" in out
    assert endpoint.cli("DBSIZE") == f"{count}\n"


def test_info_and_repeated_commands(endpoint: RedisServer) -> None:
    info = endpoint.cli("INFO", "server")
    assert "# Server" in info
    assert "redis_version:" in info
    assert lines(endpoint.cli("-r", "3", "-i", "0.01", "INCR", "n")) == ["1", "2", "3"]
    assert endpoint.cli("CONFIG", "GET", "save").startswith("save\n")
    assert endpoint.cli("--latency", "-i", "1", "--raw")
