"""Clients without number: those over the limit are turned away, the others are served."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.broker.conftest import read_all
from tests.broker.web.test_fast_lane import answers, request
from tests.starts.warm import PROGRAM
from tests.waiting import await_that

LATER = {"body": "x", "delay_ms": 3_600_000}
FILES = 256


@pytest.fixture(scope="module")
def few_files(sound_broker: Callable[..., Any]) -> Any:
    """A broker with few descriptors."""
    limit = ("prlimit", f"--nofile={FILES}:{FILES}", PROGRAM)
    return sound_broker("--resp", "127.0.0.1:0", program=limit)


@contextmanager
def idle(broker: Any, count: int) -> Iterator[list[socket.socket]]:
    """Connections that send nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(broker.connect()) for _ in range(count)]


def test_idle_connections_do_not_end_the_node(few_files: Any, topic: str) -> None:
    """More sockets than descriptors: the last get 503 or are closed, an early client goes on."""
    path = f"/v1/topics/{topic}/messages"
    few_files.post(path, LATER)
    one = few_files.connect()
    wire = request(path)
    with idle(few_files, FILES + 100) as sockets:
        refused = read_all(sockets[-1])
        assert refused == b"" or refused.startswith(b"HTTP/1.1 503 ")
        for _ in range(20):
            one.sendall(wire)
            assert one.recv(65_536).startswith(b"HTTP/1.1 200 ")
    one.close()
    await_that(lambda: few_files.call("GET", "/healthz").status == 200)
    assert few_files.counts(topic)["waiting"] == 21


def test_a_refused_client_is_told(start_broker: Callable[..., Any]) -> None:
    """503 with Retry-After before it has asked, and the end of the connection; it is counted."""
    broker = start_broker(limits="connections_max = 5")
    with idle(broker, 5) as sockets:
        with broker.connect() as sock:
            answer = read_all(sock)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 1\r\n" in answer
        assert b"\r\nConnection: close\r\n" in answer
        assert b"\r\nX-Request-Id: " in answer
        assert b'"code":"not_ready"' in answer
        sockets[0].sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = read_all(sockets[0])
        assert b'delaylog_problems_total{code="not_ready",face="http"} 1.0' in text
    broker.end_well()


def test_unread_answers_do_not_gather(broker: Any, topic: str) -> None:
    """Requests are sent ahead, no answer is read: the broker stops answering, and holds little."""
    message = {"id": "a", "body": "x" * 30_000, "delay_ms": 3_600_000}
    broker.post(f"/v1/topics/{topic}/messages", message)
    wire = f"GET /v1/topics/{topic}/messages/a HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    before = broker.memory_bytes("VmRSS")
    with broker.connect() as sock:
        sock.setblocking(False)
        until = time.monotonic() + 4
        while time.monotonic() < until:
            try:
                sock.send(wire * 200)
            except BlockingIOError:
                time.sleep(0.01)
        assert broker.call("GET", "/healthz").status == 200
        assert broker.memory_bytes("VmRSS") - before < 24 << 20
        # Whoever reads on gets all of them.
        sock.setblocking(True)
        got = b""
        while len(got) < 4 << 20:
            got += sock.recv(1 << 20)
        assert got.count(b"HTTP/1.1 200 OK") > 100


def test_who_reads_no_answers_receives_no_more_messages(broker: Any, topic: str) -> None:
    """Its receives were sent ahead. Each is answered without a task, unless answers wait."""
    path, size, count = f"/v1/topics/{topic}", 60_000, 600
    for _ in range(count // 20):
        broker.post(f"{path}/messages", [{"body": "x" * size}] * 20)
    with broker.connect() as sock:
        sock.sendall(request(f"{path}/receive", b"{}") * count)
        # The sockets of both sides take a few megabytes.
        await_that(lambda: broker.counts(topic)["leased"])
        time.sleep(2)
        leased = broker.counts(topic)["leased"]
        assert 0 < leased < count // 2
        assert all(status == 200 for status, _ in answers(sock, count))
    assert broker.counts(topic)["leased"] == count


def test_slow_clients_hold_nobody_up(broker: Any, topic: str) -> None:
    """Heads and bodies that come byte by byte, from many at once; others are served meanwhile."""
    path = f"/v1/topics/{topic}/messages"
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n".encode()
    with idle(broker, 400) as sockets:
        for number, sock in enumerate(sockets):
            sock.sendall(head + (b"Content-Length: 31\r\n\r\n" if number % 2 else b""))
        for byte in (b"{", b'"', b"b"):
            for number, sock in enumerate(sockets):
                sock.sendall(byte if number % 2 else b"x")
            for _ in range(10):
                broker.post(path, LATER)
    assert broker.counts(topic)["waiting"] == 30
