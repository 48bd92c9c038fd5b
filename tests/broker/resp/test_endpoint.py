"""The endpoint for Redis clients as a whole: answers, durability, waits, who may come in."""

from __future__ import annotations

import socket
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.broker.conftest import read_all
from tests.broker.resp.conftest import RespBroker, RespSecured
from tests.broker.resp.resp_client import RespClient, is_error
from tests.certificates import self_signed, write_private
from tests.starts.warm import as_text, run_warm
from tests.waiting import await_that

Start = Callable[..., RespBroker]


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_what_was_answered_is_there_after_a_kill(start_broker: Start, fsync: str) -> None:
    broker = start_broker("--resp-fsync", fsync)
    client = broker.connect()
    for turn in range(50):
        client.pipeline(
            ("SET", f"k{turn}", turn),
            ("HSET", "h", f"f{turn}", turn),
            ("RPUSH", "l", turn),
            ("ZADD", "z", turn, f"m{turn}"),
            ("SADD", "e", turn),
            ("XADD", "x", "*", "f", turn),
            ("INCR", "n"),
            ("EVAL", "return redis.call('INCR', KEYS[1])", 1, "by-script"),
            ("SELECT", 3),
            ("INCR", "n"),
            ("SELECT", 0),
            ("SET", f"gone{turn}", 1, "PX", 1),
            ("SET", f"kept{turn}", 1, "EX", 1000),
        )
    broker.kill()
    broker.start()
    client = broker.connect()
    assert client.call("MGET", "n", "by-script") == [b"50"] * 2
    sizes = client.pipeline(*zip(("LLEN", "HLEN", "ZCARD", "SCARD", "XLEN"), "lhzex", strict=True))
    assert sizes == [50] * 5
    assert client.pipeline(("SELECT", 3), ("GET", "n"), ("SELECT", 0))[1] == b"50"
    assert client.call("MGET", *(f"k{n}" for n in range(50))) == [b"%d" % n for n in range(50)]
    assert client.call("EXISTS", *(f"gone{n}" for n in range(50))) == 0
    assert 900 < client.call("TTL", "kept7") <= 1000
    broker.end_well()


def test_a_transaction_is_there_whole_or_not_at_all(start_broker: Start) -> None:
    broker = start_broker()
    client = broker.connect()
    for turn in range(5):
        sent = 0
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            client.sock.sendall(b"MULTI\r\nINCR a\r\nINCR b\r\nINCR c\r\nEXEC\r\n")
            sent += 1
            if turn % 2:
                for _ in range(5):
                    client.reply()
        broker.kill()
        broker.start()
        client = broker.connect()
        a, b, c = client.call("MGET", "a", "b", "c")
        assert a == b == c
        # Without reading replies, a slow broker may have been killed before its first command.
        assert int(a or 0) >= (sent if turn % 2 else 0)


def test_keys_expire_by_themselves_at_their_time(client: RespClient) -> None:
    began = time.monotonic()
    # In one turn, which is over before its time.
    sets = (("SET", "k", "v", "PX", 300), ("SET", "stays", "v"))
    assert client.pipeline(*sets, ("DBSIZE",), ("GET", "k"))[2:] == [2, b"v"]
    # Nobody asks for it: it leaves by its own time.
    await_that(lambda: client.call("DBSIZE") == 1)
    assert time.monotonic() - began >= 0.29


def test_commands_behind_a_wait_are_answered_after_it(
    client: RespClient, resp_broker: RespBroker
) -> None:
    waiting = resp_broker.connect()
    number = waiting.call("CLIENT", "ID")
    waiting.send("BLPOP", "queue", 60)
    waiting.send("PING")
    await_that(lambda: b" flags=b" in client.call("CLIENT", "LIST", "ID", number))
    assert client.call("RPUSH", "queue", "a") == 1
    assert [waiting.reply(), waiting.reply()] == [[b"queue", b"a"], b"PONG"]
    waiting.close()


def test_broken_requests_are_answered_and_the_client_closed(resp_broker: RespBroker) -> None:
    for wire, error in (
        (b"*1\r\n$x\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n:5\r\n", b"-ERR Protocol error: expected '$', got ':'\r\n"),
        (b'SET "a\r\n', b"-ERR Protocol error: unbalanced quotes in request\r\n"),
    ):
        with socket.create_connection(("127.0.0.1", resp_broker.resp_port), 10) as sock:
            sock.sendall(b"PING\r\n" + wire + b"PING\r\n")
            assert read_all(sock) == b"+PONG\r\n" + error


def test_quit_ends_after_the_answers_before_it(resp_broker: RespBroker) -> None:
    with socket.create_connection(("127.0.0.1", resp_broker.resp_port), 10) as sock:
        sock.sendall(b"SET q 1\r\nGET q\r\nQUIT\r\nGET q\r\n")
        assert read_all(sock) == b"+OK\r\n$1\r\n1\r\n+OK\r\n"


@pytest.mark.parametrize("count", [1, 20_000])
def test_a_client_that_sends_no_more_is_answered_as_by_redis(
    client: RespClient, resp_broker: RespBroker, count: int
) -> None:
    """Like `nc -N`. A command that is not whole is none."""
    requests = b"INCR n\r\n" * count + b"DL.STATS t\r\nINCR n"
    with socket.create_connection(("127.0.0.1", resp_broker.resp_port), 20) as sock:
        sender = Thread(target=sock.sendall, args=(requests,))
        sender.start()
        told = b""
        while told.count(b"\n") < count // 2:
            told += sock.recv(65_536)
        sender.join()
        sock.shutdown(socket.SHUT_WR)
        told += read_all(sock)
    assert told == b"".join(b":%d\r\n" % n for n in range(1, count + 1)) + b"$-1\r\n"


def test_a_slow_client_that_sends_no_more_is_answered_and_closed(
    client: RespClient, resp_broker: RespBroker
) -> None:
    client.call("SET", "k", "x" * 1_000_000)
    for count in (1, 5, 20):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.settimeout(20)
            sock.connect(("127.0.0.1", resp_broker.resp_port))
            sock.sendall(b"GET k\r\n" * count)
            sock.shutdown(socket.SHUT_WR)
            time.sleep(0.1)
            assert len(read_all(sock)) == count * len("$1000000\r\n\r\n" + "x" * 1_000_000)


@pytest.mark.parametrize("behind", [0, 900])
@pytest.mark.parametrize("waits", ["BLPOP queue 60", "DL.RECEIVE t 1 WAIT 60000"])
def test_a_client_that_sends_no_more_waits_for_nothing(
    client: RespClient, resp_broker: RespBroker, waits: str, behind: int
) -> None:
    """It may be gone, and would take what others wait for. Not all behind its wait is read."""

    def waiting() -> bool:
        return b"blocked_clients:1\r\n" in client.call("INFO", "clients")

    with socket.create_connection(("127.0.0.1", resp_broker.resp_port), 20) as sock:
        sock.sendall(f"SET k v\r\n{waits}\r\n".encode())
        await_that(waiting)
        sock.sendall(f"PING {'x' * 100}\r\n".encode() * behind)
        sock.shutdown(socket.SHUT_WR)
        await_that(lambda: not waiting())
        assert read_all(sock) == b"+OK\r\n"
    assert client.call("RPUSH", "queue", "a") == 1
    assert client.call("LLEN", "queue") == 1


# --------------------------------------------------------------------------- who may come in


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ((), True),
        (("--resp-scripts", "off"), False),
        (("--resp", "0.0.0.0:PORT", "--insecure", "no-auth,no-tls"), False),
        (("--resp", "0.0.0.0:PORT", "--insecure", "no-auth,no-tls", "--resp-scripts", "on"), True),
        (("--resp", "0.0.0.0:PORT", "--insecure", "no-tls"), True),
    ],
    ids=["loopback", "off", "open", "open, on", "open with tokens"],
)
def test_scripts_are_on_where_clients_are_trusted(
    secured_broker: Callable[..., RespSecured], options: tuple[str, ...], allowed: bool
) -> None:
    client = secured_broker(*options).connect(None if "no-auth,no-tls" in options else "")
    library = "#!lua name=l\nredis.register_function('f', function() return 1 end)"
    for command in (
        ("EVAL", "return 1", 0),
        ("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 0),
        ("SCRIPT", "LOAD", "return 1"),
        ("FUNCTION", "LOAD", library),
        ("FCALL", "f", 0),
    ):
        refused = is_error(client.call(*command), "ERR scripts are off: the broker's setting")
        assert refused is not allowed, command
    assert client.call("SET", "k", "v") == b"OK"


WITHOUT_LUA = """
import sys
sys.modules["lupa"] = None
from delaylog.broker.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize(("options", "warnings"), [((), 1), (("--resp-scripts", "off"), 0)])
def test_broker_without_lua_warns_once_at_its_start(
    start_broker: Start, options: tuple[str, ...], warnings: int
) -> None:
    """Job systems fail there at their first script, which may be hours later."""
    broker = start_broker(*options, program=(sys.executable, "-P", "-c", WITHOUT_LUA))
    client = broker.connect()
    for _ in range(2):
        assert is_error(client.call("EVAL", "return 1", 0), "ERR scripts ")
    found = [line["message"] for line in broker.logs() if line["level"] == "warning"]
    assert len(found) == warnings
    assert all("pip install 'delaylog[server,redis]'" in each for each in found)


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    write_private(tmp_path / "short", b"me:short\n")
    write_private(tmp_path / "pair", self_signed())
    write_private(tmp_path / "other", self_signed())
    (tmp_path / "shown").write_bytes(self_signed())
    (tmp_path / "shown").chmod(0o644)
    write_private(
        tmp_path / "locked",
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"passphrase"),
        ),
    )
    for options, error in (
        (["--resp", "nowhere"], "resp must be HOST:PORT"),
        (["--resp", "127.0.0.1:0", "--resp-maxmemory", "much"], "resp-maxmemory must be auto, 0"),
        (["--resp", "127.0.0.1:0", "--resp-fsync", "never"], "resp-fsync must be one of"),
        (["--resp", "127.0.0.1:0", "--resp-scripts", "yes"], "resp-scripts must be one of"),
        (_tls("absent"), "cannot read tls-cert absent: No such file"),
        (_tls("pair", "absent"), "cannot read tls-key absent: No such file"),
        (_tls("pair", "other"), "the key of tls-key other belongs to another certificate"),
        (_tls("short"), "tls-cert short cannot be used: it must contain a certificate"),
        (_tls("pair", "short"), "and short a private key, both in PEM format"),
        (_tls("pair", "locked"), "tls-key locked: the key is encrypted"),
        (_tls("shown"), "tls-cert shown: others than its owner may read or change it (mode 644)"),
        (_tls("pair", "shown"), "tls-key shown: others than its owner may read or change it"),
        ([*_tls("pair"), "--tls-client-ca", "absent"], "cannot read tls-client-ca absent"),
        ([*_tls("pair"), "--tls-client-ca", "short"], "tls-client-ca short must contain"),
        (["--tls-key", "x"], "tls-key requires tls-cert FILE"),
        (["--tls-client-ca", "x"], "tls-client-ca requires tls-cert FILE"),
        (["--tls-policy", "old"], "tls-policy must be one of intermediate, modern"),
    ):
        words = ["serve", "--data-dir", "data", "--http", "127.0.0.1:0", *options]
        ended = as_text(run_warm(*words, folder=tmp_path))
        assert ended.returncode == 2, (options, ended)
        assert error in ended.stderr, (options, ended.stderr)
        assert "short\n" not in ended.stderr


def _tls(certificate: str, *key: str) -> list[str]:
    return ["--tls-cert", certificate, *(["--tls-key", *key] if key else [])]


def test_tls(start_broker: Start, tmp_path: Path) -> None:
    pair = write_private(tmp_path / "broker.pem", self_signed())
    broker = start_broker("--tls-cert", str(pair))
    context = ssl.create_default_context(cafile=str(pair))
    context.check_hostname = False
    client = broker.connect(tls=context)
    assert client.pipeline(("SET", "k", "v"), ("GET", "k")) == [b"OK", b"v"]
    client.close()
    with socket.create_connection(("127.0.0.1", broker.resp_port), 10) as sock:
        sock.sendall(b"PING\r\n")
        assert b"PONG" not in read_all(sock)
    broker.end_well()


def test_a_client_that_sends_faster_than_it_is_served_is_read_no_further(
    start_broker: Start,
) -> None:
    """It may neither fill the broker's memory nor hold up others: the socket holds it back."""
    broker = start_broker()
    other = broker.connect()
    flood = socket.create_connection(("127.0.0.1", broker.resp_port))
    flood.setblocking(False)
    before = broker.memory_bytes("VmRSS")
    piece = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n" * 8_000
    sent, answered = 0, 0
    seconds: list[float] = []
    until = time.monotonic() + 4
    while time.monotonic() < until:
        began = time.monotonic()
        try:
            while time.monotonic() < began + 0.2:
                sent += flood.send(piece[sent % len(piece) :])
        except BlockingIOError:
            pass
        try:
            while answer := flood.recv(1 << 20):
                answered += answer.count(b"\n")
        except BlockingIOError:
            pass
        began = time.monotonic()
        assert other.call("PING") == b"PONG"
        seconds.append(time.monotonic() - began)
    assert answered > 0
    # A busy machine may hold up one of them.
    assert sorted(seconds)[-2] < 1, seconds
    assert broker.memory_bytes("VmRSS") < before + (40 << 20), (sent >> 20, answered)
    # All that was sent is answered, in the end.
    flood.settimeout(30)
    flood.sendall(piece[sent % len(piece) :])
    sent += len(piece) - sent % len(piece)
    while answered < sent // 27:
        answered += flood.recv(1 << 20).count(b"\n")
    assert answered == sent // 27
    flood.close()


def test_a_command_that_the_log_cannot_take_is_refused(client: RespClient) -> None:
    """As soon as that is clear. An assertion in the log ended the broker over it."""
    client.sock.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$267386880\r\n")
    error = client.reply()
    assert is_error(error, "ERR Protocol error: a command may have 267386880 bytes at most")
    assert client.sock.recv(1) == b""


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_a_stop_amid_writes_ends_and_keeps_what_was_answered(
    start_broker: Start, fsync: str
) -> None:
    """With everysec a turn writes beside the sync that runs: its fsync must not be forgotten."""
    broker = start_broker("--resp-fsync", fsync)
    written = 0
    for _ in range(3):
        flood = socket.create_connection(("127.0.0.1", broker.resp_port), 20)
        answers = 0
        until = time.monotonic() + 0.5
        stopping = None
        try:
            while True:
                flood.sendall(b"INCR n\r\n" * 5)
                if not (data := flood.recv(4096)):
                    break
                answers += data.count(b":")
                if stopping is None and time.monotonic() > until:
                    stopping = Thread(target=broker.stop)
                    stopping.start()
        except ConnectionError:
            pass
        flood.close()
        assert stopping is not None
        stopping.join(60)
        assert not stopping.is_alive()
        broker.start()
        client = broker.connect()
        now = int(client.call("GET", "n"))
        assert now >= written + answers
        written = now
        client.close()
