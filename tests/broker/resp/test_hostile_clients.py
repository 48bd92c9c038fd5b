"""Clients that mean harm, on a broker with an endpoint for Redis clients.

What each sends costs it little. The broker refuses it, bounds it, or closes the connection, and
goes on for the others.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.broker.conftest import read_all
from tests.broker.resp.conftest import RespBroker, RespSecured
from tests.broker.resp.resp_client import RespClient, is_error
from tests.certificates import self_signed, write_private
from tests.redis_reference import reference
from tests.waiting import await_that

Start = Callable[..., RespBroker]

ATTACKS = [
    b"POST / HTTP/1.1\r\nHost: x\r\n\r\nSET owned by-a-page\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\nSET owned by-a-page\r\n",
    b"hOST: x\r\nSET owned by-a-page\r\n",
    b"*1\r\n$4\r\npost\r\nSET owned by-a-page\r\n",
    b"MULTI\r\nPOST / HTTP/1.1\r\nSET owned by-a-page\r\nEXEC\r\n",
]


@pytest.mark.parametrize("request_bytes", ATTACKS)
def test_a_request_of_http_is_closed(
    resp_broker: RespBroker, client: RespClient, request_bytes: bytes
) -> None:
    """What a browser can be made to send: its body would be run as commands."""
    with socket.create_connection(("127.0.0.1", resp_broker.resp_port), 10) as page:
        page.sendall(request_bytes)
        with suppress(ConnectionResetError):
            assert read_all(page) == b""
    assert client.call("EXISTS", "owned") == 0
    assert any("SECURITY ATTACK" in line.get("message", "") for line in resp_broker.logs())
    with reference() as redis:
        assert redis.ask(request_bytes) == b""
        assert redis.ask(b"EXISTS owned\r\n", until=b"\r\n") == b":0\r\n"


def test_an_array_of_one_large_value_many_times_is_refused(client: RespClient) -> None:
    """A hundred bytes a megabyte."""
    client.call("SET", "k", b"x" * (1 << 20))
    assert is_error(client.call("MGET", *["k"] * 1000), "ERR the reply would hold")
    client.call("SET", "small", "x" * 3_000)
    assert is_error(client.call("MGET", *["small"] * 50_000), "ERR the reply would hold")
    assert client.call("MGET", *["small"] * 3) == [b"x" * 3_000] * 3


def test_a_client_that_does_not_read_is_owed_little(
    resp_broker: RespBroker, client: RespClient
) -> None:
    """Eight of them ask for 1 GiB; the broker runs their commands as they read."""
    client.call("SET", "k", b"x" * (1 << 20))
    before = resp_broker.memory_bytes("VmRSS")
    socks = []
    try:
        for _ in range(8):
            sock = socket.create_connection(("127.0.0.1", resp_broker.resp_port), 10)
            sock.sendall(b"GET k\r\n" * 128)
            socks.append(sock)
        time.sleep(1)
        assert client.call("PING") == b"PONG"
        assert resp_broker.memory_bytes("VmRSS") - before < 150 << 20
        # Who does read gets all.
        reader = RespClient(resp_broker.resp_port)
        reader.sock.sendall(b"GET k\r\n" * 100)
        assert {len(reader.reply()) for _ in range(100)} == {1 << 20}
        reader.close()
    finally:
        for sock in socks:
            sock.close()


def test_values_are_refused_beyond_the_bound(start_broker: Start) -> None:
    """What makes room is never refused.

    No request is above 1 MiB, so that no client is closed while it sends one.
    """
    broker = start_broker("--resp-maxmemory", "300mb")
    client = broker.connect()
    assert client.call("CONFIG", "GET", "maxmemory") == [b"maxmemory", b"%d" % (300 << 20)]
    large = b"x" * 1_000_000
    replies = [client.call("SET", f"k{n}", large) for n in range(320)]
    assert replies[0] == b"OK"
    assert is_error(replies[-1], "OOM command not allowed when used memory")
    assert client.call("EXISTS", "k319") == 0
    client.pipeline(*[("DEL", f"k{n}") for n in range(319)])
    await_that(lambda: client.call("SET", "after", "v") == b"OK")
    broker.end_well()


@pytest.mark.parametrize(
    "command",
    [
        ["KEYS"],
        ["SCAN", 0, "MATCH"],
        ["PSUBSCRIBE", "short"],
        ["CONFIG", "GET"],
        ["PUBSUB", "CHANNELS"],
    ],
    ids=lambda command: command[0],
)
def test_long_patterns_are_refused(client: RespClient, command: list[str]) -> None:
    """A matcher is made of each, which takes a hundred times its bytes, and time."""
    assert is_error(client.call(*command, "a*?[bc]" * 600), "ERR a pattern may have 1024 bytes")
    assert client.call("PING") == b"PONG"


def test_patterns_of_a_client_are_bounded(client: RespClient) -> None:
    patterns = [f"{n:04}*" + "?" * 995 for n in range(70)]
    assert is_error(client.call("PSUBSCRIBE", *patterns), "ERR the patterns of a client")
    assert client.call("PUBSUB", "NUMPAT") == 0


def test_commands_of_a_transaction_are_bounded(client: RespClient) -> None:
    """As after any command that was refused, EXEC discards them all."""
    client.call("MULTI")
    replies = [client.call("SET", "k", b"x" * (8 << 20)) for _ in range(10)]
    assert replies[0] == b"QUEUED"
    assert is_error(replies[-1], "ERR a transaction may have")
    assert is_error(client.call("EXEC"), "EXECABORT")
    assert client.call("EXISTS", "k") == 0
    # The next one begins anew.
    client.call("MULTI")
    client.call("SET", "k", b"x" * (8 << 20))
    assert client.call("EXEC") == [b"OK"]


def test_a_script_that_is_stopped_has_done_nothing(start_broker: Start) -> None:
    """As the log has it: what a script wrote is logged with its end, and it came to none."""
    limits = "delaylog.broker.keyspace.scripts.runtime.LIMITS"
    soon = {f"{limits}.seconds": 0.3, f"{limits}.seconds_after_write": 0.3}
    broker = start_broker(constants=soon)
    others, client = broker.connect(), broker.connect()
    assert others.call("SET", "k", "kept") == b"OK"
    began = time.monotonic()
    script = "redis.call('SET', 'k', 'lost') redis.call('SET', 'new', 1) while true do end"
    assert is_error(client.call("EVAL", script, 0), "ERR Script stopped")
    assert time.monotonic() - began < 5
    assert others.call("MGET", "k", "new") == [b"kept", None]
    assert is_error(others.call("EVAL", "while true do end", 0), "ERR Script stopped")
    assert others.call("SET", "k", "again") == b"OK"
    broker.kill()
    broker.start()
    assert broker.connect().call("MGET", "k", "new") == [b"again", None]


def test_guesses_of_a_token_are_slow_and_noted(secured_broker: Callable[..., RespSecured]) -> None:
    secured = secured_broker()
    broker, known = secured.broker, secured.connect()
    began = time.monotonic()
    for guess in range(4):
        # A new connection is no way around it.
        assert is_error(broker.connect().call("AUTH", f"guess-{guess}"), "WRONGPASS")
    assert time.monotonic() - began > 1.4
    # Nor is a pipeline, or a connection that is logged in as another user.
    failures = 4
    for client in (broker.connect(), known):
        guesses = client.pipeline(*(("AUTH", f"guess-{guess}") for guess in range(4)))
        wrong = sum(is_error(reply, "WRONGPASS") for reply in guesses)
        assert wrong <= 1
        failures += wrong
        assert is_error(guesses[-1], "ERR a login from this address has just failed")
    time.sleep(0.6)
    # Who is in already waits for nothing.
    began = time.monotonic()
    assert known.call("PING") == b"PONG"
    assert time.monotonic() - began < 0.4
    assert secured.connect().call("PING") == b"PONG"
    counted = b"delaylog_resp_failed_logins_total %d.0" % failures
    assert counted in secured.call("GET", "/metrics").body
    noted = [line for line in broker.logs() if "wrong token" in line.get("message", "")]
    assert [line["failures"] for line in noted] == [1, 2, 4]


def test_guesses_keep_no_token_out(secured_broker: Callable[..., RespSecured]) -> None:
    """Guesses wait for each other. A client with a token waits for none of them, and a wrong token
    makes nobody wait.
    """
    secured = secured_broker()
    revoked = secured.principal("gone")
    assert secured.call("DELETE", "/v1/principals/gone").status == 200
    for _ in range(20):
        guesser = secured.broker.connect()
        for guess in range(5):
            guesser.send("AUTH", f"guess-{guess}")
    for login in (("AUTH", secured.admin), ("HELLO", 3, "AUTH", "admin", secured.admin)):
        client = secured.broker.connect()
        for _ in range(20):
            assert is_error(client.call("AUTH", revoked), "WRONGPASS")
        assert not is_error(client.call(*login), "")
    metrics = secured.call("GET", "/metrics").body
    failed = re.search(rb"delaylog_resp_failed_logins_total (\d+)", metrics)
    assert failed is not None
    assert int(failed[1]) < 40 + 50, "half a second for each guess"


def test_who_sends_without_end_is_closed_when_memory_is_used_up(start_broker: Start) -> None:
    broker = start_broker("--resp-maxmemory", "200mb")
    others = broker.connect()
    sender = broker.connect()
    sender.sock.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$250000000\r\n")
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        sender.sock.sendall(b"x" * 250_000_000)
    await_that(lambda: others.call("SET", "k", "v") == b"OK")


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
def test_replies_that_nobody_reads_take_a_share_of_the_memory(
    start_broker: Start, tmp_path: Path, over_tls: bool
) -> None:
    """Thirty clients ask for 1.8 GiB, and read nothing. Who reads is served."""
    options, tls = ["--resp-maxmemory", "400mb"], None
    if over_tls:
        pair = write_private(tmp_path / "broker.pem", self_signed())
        options += ["--tls-cert", str(pair)]
        tls = ssl.create_default_context(cafile=str(pair))
        tls.check_hostname = False
    broker = start_broker(*options)
    client = broker.connect(tls=tls)
    client.call("SET", "k", b"x" * (60 << 20))
    silent = []
    try:
        for _ in range(30):
            silent.append(RespClient(broker.resp_port, tls=tls))
            silent[-1].send("GET", "k")
        # Its replies come in order, though the large one may be deferred.
        for _ in range(3):
            first, large, last = client.pipeline(("PING",), ("GET", "k"), ("PING",))
            assert (first, len(large), last) == (b"PONG", 60 << 20, b"PONG")
        await_that(lambda: client.call("SET", "after", "v") == b"OK")
        assert broker.memory_bytes("VmHWM") < 400 << 20
    finally:
        for each in silent:
            each.close()
    closed = [line for line in broker.logs() if "is closed" in line.get("message", "")]
    assert closed
    assert all(line["address"].startswith("127.0.0.1:") for line in closed)
    assert not any("exception" in line or "traceback" in line for line in closed)


def test_readers_that_are_woken_wait_for_room(start_broker: Start) -> None:
    """One XADD wakes thirty readers of 16 MiB. All who read get it, and memory stays bounded."""
    # Thirty threads of this process may keep one of them from reading for half a second.
    rule = "delaylog.broker.resp.unread_replies"
    patient = {f"{rule}.PATIENCE_SECONDS": 30, f"{rule}.STARVED_SECONDS": 60}
    broker = start_broker("--resp-maxmemory", "400mb", constants=patient)
    client = broker.connect()
    readers = [broker.connect() for _ in range(30)]
    for reader in readers:
        reader.send("XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    info = b"blocked_clients:30"
    await_that(lambda: info in client.call("INFO", "clients"))
    assert client.call("XADD", "s", "1-1", "f", b"x" * (16 << 20)) == b"1-1"
    with ThreadPoolExecutor(len(readers)) as threads:
        for reply in threads.map(RespClient.reply, readers):
            ((stream, ((number, fields),)),) = reply
            assert (stream, number, len(fields[1])) == (b"s", b"1-1", 16 << 20)
    assert broker.memory_bytes("VmHWM") < 400 << 20
