"""What a connection is: its handshake, name, database, login, and its end by another's hand."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests.redis.servers import DELAYLOG, TIMEOUT_S, RedisServer


def ping_often(connection: Any) -> None:
    """More often than a closed connection bears."""
    for _ in range(100):
        connection.send_command("PING")
        connection.read_response()


def test_the_server_says_who_it_is(client: redis.Redis) -> None:
    """What job systems read before they start."""
    assert client.ping() is True
    assert client.echo("hi") == "hi"
    info = client.info()
    assert int(info["redis_version"].split(".")[0]) >= 5
    assert info["redis_mode"] == "standalone"
    assert info["loading"] == 0
    assert info["connected_clients"] >= 1
    assert info["used_memory_human"]
    assert info["maxmemory_policy"] == "noeviction"
    assert info["used_memory"] > 1 << 19
    assert len(info["run_id"]) == 40
    assert info["tcp_port"] == client.connection_pool.connection_kwargs["port"]
    assert client.role()[0] == "master"
    assert client.info("keyspace") == {}
    client.set("k", 1, ex=100)
    database = client.info("keyspace")["db0"]
    assert (database["keys"], database["expires"]) == (1, 1)
    seconds, microseconds = client.time()
    assert abs(seconds + microseconds / 1e6 - time.time()) < 5
    # A redis-server that was told nothing has no bound, which is 0.
    assert int(client.config_get("maxmemory")["maxmemory"]) >= 0
    assert client.command_count() == len(client.command()) > 100


def test_a_connection_has_a_number_and_a_name(endpoint: RedisServer, wire: dict[str, Any]) -> None:
    with (
        endpoint.client(decode_responses=True, client_name="worker-1", **wire) as one,
        endpoint.client(decode_responses=True, **wire) as two,
    ):
        assert one.client_getname() == "worker-1"
        assert not two.client_getname()
        assert two.client_id() > one.client_id()
        listed = {int(line["id"]): line for line in two.client_list()}
        assert listed[one.client_id()]["name"] == "worker-1"
        assert listed[two.client_id()]["cmd"].startswith("client")
        assert listed[two.client_id()]["db"] == "0"
        assert two.client_setname("worker-2") is True
        assert two.client_info()["name"] == "worker-2"
        number = two.client_id()
        assert [each["name"] for each in two.client_list(client_id=[str(number)])] == ["worker-2"]


def test_databases_are_apart(endpoint: RedisServer, wire: dict[str, Any]) -> None:
    with (
        endpoint.client(decode_responses=True, **wire) as zero,
        endpoint.client(decode_responses=True, db=5, **wire) as five,
    ):
        zero.set("k", "zero")
        assert five.get("k") is None
        five.set("k", "five")
        assert (zero.get("k"), five.get("k")) == ("zero", "five")
        assert five.dbsize() == 1
        five.flushdb()
        assert (zero.dbsize(), five.dbsize()) == (1, 0)
    with (
        endpoint.client(db=9999, **wire) as none,
        pytest.raises(redis.ResponseError, match="DB index is out of range"),
    ):
        none.ping()


def test_a_killed_client_notices(endpoint: RedisServer, wire: dict[str, Any]) -> None:
    with endpoint.client(**wire) as killer, endpoint.client(retry=None, **wire) as victim:
        connection = victim.connection_pool.get_connection()
        connection.send_command("CLIENT", "ID")
        number = connection.read_response()
        assert killer.client_kill_filter(_id=number) == 1
        with pytest.raises(redis.ConnectionError):
            ping_often(connection)
        assert number not in [int(line["id"]) for line in killer.client_list()]
        victim.connection_pool.release(connection)
        assert victim.ping() is True


def test_a_password_is_asked_for(
    start_server: Callable[..., RedisServer], server_kind: str, wire: dict[str, Any]
) -> None:
    server = start_server(password="open-sesame")
    with server.client(decode_responses=True, **wire) as client:
        assert client.ping() is True
        assert client.acl_whoami() == ("admin" if server_kind == DELAYLOG else "default")
    refused = "Authentication required|HELLO must be called with the client already authenticated"
    for wrong, answer in ((None, refused), ("wrong", "invalid username-password pair")):
        with (
            server.client(password=wrong, retry=None, **wire) as client,
            pytest.raises(redis.AuthenticationError, match=answer),
        ):
            client.get("k")
    with server.client(username="default", **wire) as client:
        assert client.ping() is True
    assert server.cli("PING") == "PONG\n"
    server.password = None
    assert server.cli("GET", "k").startswith("NOAUTH")


def test_hundreds_of_connections_at_once(endpoint: RedisServer) -> None:
    count = 300
    socks = [
        socket.create_connection((endpoint.host, endpoint.port), TIMEOUT_S) for _ in range(count)
    ]
    try:
        for sock in socks:
            sock.sendall(b"INCR n\r\n")
        answers = sorted(int(sock.recv(64).strip(b":\r\n")) for sock in socks)
    finally:
        for sock in socks:
            sock.close()
    assert answers == list(range(1, count + 1))


def test_a_client_reconnects_to_a_server_that_came_back(
    start_server: Callable[..., RedisServer], wire: dict[str, Any]
) -> None:
    server = start_server(fsync="always")
    with server.client(**wire) as client:
        client.set("k", "kept")
        assert server.terminate() == 0
        server.start()
        assert client.get("k") == b"kept"
