"""The server's own commands where sockets count: ending clients, limits, addresses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
import redis

from tests.broker.resp.conftest import RespBroker
from tests.broker.resp.resp_client import RespClient, is_closed
from tests.programs import run_program
from tests.redis_reference import reference_programs
from tests.waiting import await_that

LIMIT_S = 30


@pytest.fixture
def other(resp_broker: RespBroker) -> Iterator[RespClient]:
    """A second client."""
    with closing(resp_broker.connect()) as other:
        yield other


def test_kill_closes_a_client_that_waits(client: RespClient, other: RespClient) -> None:
    number = other.call("CLIENT", "ID")
    other.send("BLPOP", "q", 0)
    await_that(lambda: b"cmd=blpop" in client.call("CLIENT", "LIST", "ID", number))
    address = "{}:{}".format(*other.sock.getsockname())
    assert client.call("CLIENT", "KILL", address) == b"OK"
    assert is_closed(other)
    assert client.call("RPUSH", "q", "a") == 1


def test_kill_closes_a_client_that_does_not_read(client: RespClient, other: RespClient) -> None:
    number = other.call("CLIENT", "ID")
    client.call("SET", "large", b"x" * (4 << 20))
    for _ in range(16):
        other.send("GET", "large")
    time.sleep(0.2)
    assert client.call("CLIENT", "KILL", "ID", number) == 1
    await_that(lambda: not client.call("CLIENT", "LIST", "ID", number), seconds=LIMIT_S)


def test_one_is_answered_before_the_end(other: RespClient) -> None:
    number = other.call("CLIENT", "ID")
    assert other.call("CLIENT", "KILL", "ID", number, "SKIPME", "no") == 1
    assert is_closed(other)


def test_addresses(client: RespClient, resp_broker: RespBroker) -> None:
    line = client.call("CLIENT", "INFO").decode()
    members = dict(pair.split("=", 1) for pair in line.split(" "))
    assert members["addr"] == "{}:{}".format(*client.sock.getsockname())
    assert members["laddr"] == f"127.0.0.1:{resp_broker.resp_port}"
    assert int(members["fd"]) > 2
    told = client.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "any")
    assert told == [b"127.0.0.1", b"%d" % resp_broker.resp_port]
    assert client.call("CONFIG", "GET", "port") == [b"port", b"%d" % resp_broker.resp_port]
    assert b"\r\naof_enabled:1\r\n" in client.call("INFO", "persistence")


def test_a_client_of_sentinels_finds_the_leader(resp_broker: RespBroker) -> None:
    sentinel = redis.Sentinel([("127.0.0.1", resp_broker.resp_port)], socket_timeout=LIMIT_S)
    assert sentinel.discover_master("delaylog") == ("127.0.0.1", resp_broker.resp_port)
    master = sentinel.master_for("delaylog")
    try:
        assert master.set("k", "v")
    finally:
        master.close()
        for one in sentinel.sentinels:
            one.close()


def test_redis_cli_has_its_help(resp_broker: RespBroker) -> None:
    told = run_program(
        reference_programs() / "redis-cli",
        "-p",
        resp_broker.resp_port,
        input="help get\nping\n",
        timeout=LIMIT_S,
        check=True,
    )
    assert "Return the string of a key" in told.stdout
    assert told.stdout.endswith("PONG\n")
