"""A broker that speaks TLS to HTTP and Redis clients, and takes new certificates while it runs."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest

from delaylog.broker.host.tls.failed_handshakes import ALERT
from delaylog.broker.host.tls.listener import HANDSHAKE_SECONDS
from delaylog.client.child_broker import free_port
from tests.broker.conftest import Broker, read_all
from tests.broker.host.tls.listening import Files
from tests.broker.resp.resp_client import RespClient
from tests.certificates import HOSTS, Authority, write_private
from tests.starts.warm import PROGRAM, run_warm
from tests.waiting import await_that

Start = Callable[..., Broker]


@pytest.fixture
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """They outlive the test, as brokers do, which notice that a file is gone."""
    return Files(tmp_path_factory.mktemp("tls"))


def serving(start: Start, files: Files, *options: str, **how: Any) -> Broker:
    """A broker with the files' certificate, which tests trust."""
    broker = start("--tls-cert", str(files.folder / "broker.pem"), *options, **how)
    broker.tls = files.client()
    return broker


def subject(broker: Broker, files: Files) -> str:
    """The common name of the broker's certificate."""
    with files.client().wrap_socket(broker.connect(), server_hostname="localhost") as sock:
        certificate = sock.getpeercert()
    assert certificate is not None
    return dict(pair for (pair,) in certificate["subject"])["commonName"]


def test_both_ports(start_broker: Start, files: Files) -> None:
    """Sends, a long poll, a body over many segments, a stream; plain requests get no answer."""
    port = free_port()
    broker = serving(start_broker, files, "--resp", f"127.0.0.1:{port}")
    poll = broker.later("POST", "/v1/topics/t/receive", {"wait_ms": 10_000})
    broker.await_waiting(1)
    sent = broker.post("/v1/topics/t/messages", {"body": "x" * 900_000})
    assert poll.result().json["messages"][0]["id"] == sent["id"]
    assert len(broker.call("GET", "/openapi.json").body) > 65_536
    context = files.client()
    context.check_hostname = False
    redis = RespClient(port, tls=context)
    assert redis.pipeline(("SET", "k", "v"), ("GET", "k")) == [b"OK", b"v"]
    redis.close()
    for wire in (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01" + bytes(90)):
        assert b"HTTP" not in broker.raw(wire)
    told = "an HTTP client at 127.0.0.1 does not speak TLS, which this port requires"
    assert [line["message"] for line in broker.logs()].count(told) == 1
    broker.end_well()


@pytest.mark.parametrize("path", ["/openapi.json", "/v1/topics/t/messages/m"])
def test_a_pipeline_that_nobody_reads_is_bounded(
    start_broker: Start, files: Files, path: str
) -> None:
    """One connection asks for answers, by aiohttp or by the fast lane, and never reads them."""
    broker = serving(start_broker, files)
    broker.post("/v1/topics/t/messages", {"id": "m", "body": "x" * 20_000, "delay_ms": 3_600_000})
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 1_000

    def ask_until_the_broker_reads_no_more() -> None:
        while True:
            sock.sendall(request)

    with files.client().wrap_socket(broker.connect(), server_hostname="localhost") as sock:
        sock.settimeout(2)
        with pytest.raises(TimeoutError):
            ask_until_the_broker_reads_no_more()
        assert broker.call("GET", "/healthz").status == 200
        assert broker.memory_bytes("VmHWM") < 200 << 20
    broker.end_well()


@pytest.mark.parametrize("how", ["call", "signal", "change"])
def test_new_certificates(start_broker: Start, files: Files, how: str) -> None:
    """A new certificate, and other client CAs, by each of the ways; broken files change nothing."""
    stays, goes = Authority("stays"), Authority("goes")
    files.trust(stays, goes)
    broker = serving(start_broker, files, "--tls-client-ca", str(files.folder / "clients.pem"))
    kept = files.client(stays).wrap_socket(broker.connect(), server_hostname="localhost")
    gone = files.client(goes).wrap_socket(broker.connect(), server_hostname="localhost")
    assert (ok(kept), ok(gone)) == (True, True)

    def reload() -> tuple[int, str]:
        if how == "call":
            answer = broker.call("POST", "/v1/reload")
            return answer.status, answer.body.decode()
        if how == "signal":
            assert broker._process is not None
            broker._process.send_signal(signal.SIGHUP)
        return 0, ""

    files.renew("second")
    files.trust(stays)
    status, text = reload()
    if how == "call":
        assert (status, text) == (200, '{"reloaded":["tls"]}')
    await_that(lambda: subject(broker, files) == "second")
    assert (ok(kept), ok(gone)) == (True, False)
    with files.client(goes).wrap_socket(broker.connect(), server_hostname="localhost") as sock:
        assert not ok(sock)
    (files.folder / "broker.pem").write_bytes(b"")
    status, text = reload()
    if how == "call":
        assert status == 409
        assert "tls stays as it was: tls-cert" in text
    broker.await_metric('delaylog_reloads_total{result="failed",source="tls"}', 1)
    assert ok(kept)
    assert subject(broker, files) == "second"
    for sock in (kept, gone):
        sock.close()
    assert broker.stop() == 0
    errors = [line["message"] for line in broker.logs() if line["level"] == "error"]
    assert len(errors) == 1
    assert errors[0].startswith("tls stays as it was: tls-cert ")


def test_expired_certificates_and_those_of_another_host(
    start_broker: Start, files: Files, tmp_path: Path
) -> None:
    """A reload takes neither and says why; a start refuses the former. The metric has the end of
    the one in use.
    """
    broker = serving(start_broker, files)
    pair = files.folder / "broker.pem"

    def end_s() -> float:
        line = b'delaylog_certificate_expires_timestamp_seconds{source="server"} '
        return float(broker.call("GET", "/metrics").body.split(line)[1].split()[0])

    assert end_s() == pytest.approx(time.time() + 30 * 86_400, abs=600)
    before = end_s()
    for count, (how, says) in enumerate(
        (
            ({"hosts": HOSTS, "days": (-9, -1)}, "tls-cert: CN=second has expired: it ended on 20"),
            ({"hosts": HOSTS, "days": (1, 9)}, "tls-cert: CN=second is not valid before 20"),
            ({"hosts": ["other.example"], "days": (-1, 9)}, "it is that of another host"),
        ),
        1,
    ):
        write_private(pair, files.authority.issue("second", **how))
        answer = broker.call("POST", "/v1/reload")
        assert (answer.status, says in answer.json["detail"]) == (409, True), answer.json
        broker.await_metric('delaylog_reloads_total{result="failed",source="tls"}', count)
        assert (end_s(), subject(broker, files)) == (before, "broker")
    write_private(pair, files.authority.issue("second", hosts=HOSTS, days=(-300, 5)))
    assert broker.call("POST", "/v1/reload").status == 200
    broker.await_metric('delaylog_certificate_faults{severity="warning"}', 1)
    warned = [line["message"] for line in broker.logs() if "in less than 7 days" in line["message"]]
    assert len(warned) == 1
    assert broker.stop() == 0
    write_private(pair, files.authority.issue("third", hosts=HOSTS, days=(-9, -1)))
    done = run_warm("serve", "--tls-cert", pair, "--http", "127.0.0.1:0", "--data-dir", tmp_path)
    assert done.returncode == 2
    assert b"tls-cert: CN=third has expired: it ended on 20" in done.stderr


def test_an_exchange_under_load(start_broker: Start, files: Files) -> None:
    """Clients send all the time, on kept and on new connections, while everything is exchanged."""
    stays, goes = Authority("stays"), Authority("goes")
    files.trust(stays, goes)
    broker = serving(start_broker, files, "--tls-client-ca", str(files.folder / "clients.pem"))
    contexts = [files.client(stays) for _ in range(2)]
    broker.tls = contexts[0]
    ended, sent = Event(), [0, 0]

    def send(which: int) -> None:
        sock = contexts[which].wrap_socket(broker.connect(), server_hostname="localhost")
        with sock as kept:
            while not ended.is_set():
                assert ok(kept)
                answer = broker.call("POST", f"/v1/topics/t{which}/messages", {"body": "x"})
                assert answer.status == 200
                sent[which] += 1

    with ThreadPoolExecutor(2) as pool:
        load = [pool.submit(send, which) for which in (0, 1)]
        try:
            for turn in range(4):
                done = min(sent)
                files.renew(f"broker {turn}")
                files.trust(*((stays,) if turn % 2 == 0 else (stays, goes)))
                assert broker.call("POST", "/v1/reload").status == 200
                assert subject(broker, files) == f"broker {turn}"
                await_that(lambda done=done: min(sent) > done + 5)
        finally:
            ended.set()
        for each in load:
            each.result()
    for which, count in enumerate(sent):
        counts = broker.counts(f"t{which}")
        assert counts is not None
        assert counts["ready"] == count
    broker.end_well()


def ok(sock: ssl.SSLSocket) -> bool:
    """Whether a connection is served."""
    try:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return sock.recv(4_096).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def test_connections_in_their_handshake_count(start_broker: Start, files: Files) -> None:
    """They use up the limit of connections, whichever port they came to, and end after 5 s."""
    port = free_port()
    broker = serving(
        start_broker, files, "--resp", f"127.0.0.1:{port}", limits="connections_max = 20"
    )
    idle = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(4)]
    idle += [broker.connect() for _ in range(16)]
    for at in (port, broker.port):
        with socket.create_connection(("127.0.0.1", at), 10) as refused:
            assert read_all(refused) == b""
    began = time.monotonic()
    for sock in idle:
        assert read_all(sock) == b""
        sock.close()
    # A busy machine comes on top.
    assert time.monotonic() - began < HANDSHAKE_SECONDS + 5

    def answers() -> bool:
        # A client may see the end of a connection before the broker has counted it.
        with suppress(OSError):
            return broker.call("GET", "/healthz").status == 200
        return False

    await_that(answers)
    broker.end_well()


def hello(context: ssl.SSLContext) -> bytes:
    """The first message of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_garbage_in_handshakes(start_broker: Start, files: Files) -> None:
    """Changed, cut and repeated messages, and ends at any point, are no more than closed.

    The seed is fixed; a hundred connections at a time.
    """
    files.trust(Authority("clients"))
    port, random = free_port(), Random(1)
    clients = ("--tls-client-ca", str(files.folder / "clients.pem"))
    broker = serving(start_broker, files, "--resp", f"127.0.0.1:{port}", *clients)
    first = hello(files.client())
    for at in (broker.port, port, broker.port):
        socks = [socket.create_connection(("127.0.0.1", at), 10) for _ in range(100)]
        for number, sock in enumerate(socks):
            wire = bytearray(first)
            for _ in range(number % 4):
                wire[random.randrange(len(wire))] = random.randrange(256)
            if number % 3 == 0:
                del wire[random.randrange(len(wire)) :]
            elif number % 3 == 1:
                wire += random.randbytes(random.randrange(20_000))
            with suppress(OSError):
                sock.sendall(wire)
                if number % 5 == 0:
                    sock.shutdown(socket.SHUT_WR)
        assert broker.call("GET", "/healthz").status == 200
        for sock in socks:
            sock.close()
    # A connection that ends without the farewell of TLS, within a request.
    sock = files.client().wrap_socket(broker.connect(), server_hostname="localhost")
    head = b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\n"
    sock.sendall(head + b"Content-Length: 9\r\n\r\n{")
    socket.socket(fileno=sock.detach()).close()
    assert broker.call("GET", "/healthz").status == 200
    broker.end_well()


def test_a_plain_port_tells_tls_clients(start_broker: Start) -> None:
    """A TLS handshake is answered with an alert, on both ports, and logged once."""
    port = free_port()
    broker = start_broker("--resp", f"127.0.0.1:{port}")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for at in (broker.port, port, broker.port, port):
        sock = socket.create_connection(("127.0.0.1", at), 10)
        with sock, pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
            context.wrap_socket(sock)
    with broker.connect() as sock:
        sock.sendall(b"\x16")
        sock.sendall(b"\x03\x01")
        assert read_all(sock) == ALERT
    said = [line["message"] for line in broker.logs() if "speaks TLS" in line["message"]]
    assert sorted(said) == [
        "a Redis client speaks TLS, and this port does not",
        "an HTTP client speaks TLS, and this port does not",
    ]
    broker.end_well()


def test_the_command_line(start_broker: Start) -> None:
    """Without any files to read it says so."""
    broker = start_broker()
    words = [PROGRAM, "reload", "--url", broker.url]
    for more, said in (
        ([], "read again: nothing\n"),
        (["--json"], '{"reloaded":[]}\n'),
    ):
        done = subprocess.run([*words, *more], capture_output=True, text=True, check=True)
        assert done.stdout == said
    broker.end_well()


@pytest.mark.parametrize(
    ("insecure", "said"),
    [
        ("no-tls", ["TLS is switched off"]),
        ("no-auth,no-tls", ["authentication is switched off", "TLS is switched off"]),
    ],
)
def test_what_an_operator_accepts_is_logged_at_each_start(
    start_broker: Start, insecure: str, said: list[str]
) -> None:
    broker = start_broker("--resp", f"0.0.0.0:{free_port()}", f"--insecure={insecure}")
    for start in (1, 2):
        messages = [line["message"] for line in broker.logs() if line["level"] == "warning"]
        for text in said:
            assert len([message for message in messages if message.startswith(text)]) == start
        assert broker.stop() == 0
        if start == 1:
            broker.start()
