"""The fast lane: what takes it, what does not, and that nobody can tell by the answers."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import tries

LATER = b'{"body":"x","delay_ms":3600000}'
HEADS = {
    "go": "Host: {host}\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: {size}\r\n"
    "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n",
    "java": "Connection: Upgrade, HTTP2-Settings\r\nContent-Length: {size}\r\nHost: {host}\r\n"
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\n"
    "User-Agent: Java-http-client/17.0.2\r\nContent-Type: application/json\r\n",
    "httpx": "Host: {host}\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
    "Connection: keep-alive\r\nUser-Agent: python-httpx/0.27.0\r\nContent-Length: {size}\r\n"
    "Content-Type: application/json\r\n",
}
"""What clients send by default, as recorded."""


def fast(broker: Any) -> int:
    """Requests that have taken the fast lane so far."""
    text = broker.call("GET", "/metrics").body.decode()
    found = re.search(r"^delaylog_http_fast_requests_total (\S+)$", text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def request(path: str, body: bytes = LATER, more: str = "", method: str = "POST") -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def answers(sock: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """(status, body) of so many answers of one connection; what follows stays in the socket."""
    reader = sock.makefile("rb", buffering=0)
    out = []
    for _ in range(count):
        status = int(reader.readline().split()[1])
        size = 0
        while (line := reader.readline()) != b"\r\n":
            assert line, "the connection was closed"
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        body = b""
        while len(body) < size:
            body += (more := reader.read(size - len(body)))
            assert more, "the connection was closed"
        out.append((status, body))
    return out


@pytest.mark.parametrize("client", ["http.client", "requests", "aiohttp", "curl", *HEADS])
def test_default_clients_take_it(broker: Any, topic: str, client: str) -> None:
    path = f"/v1/topics/{topic}/messages"
    url, before = broker.url + path, fast(broker)
    if client == "http.client":
        connection = http.client.HTTPConnection("127.0.0.1", broker.port)
        connection.request("POST", path, LATER)
        assert connection.getresponse().status == 200
        connection.close()
    elif client == "requests":
        assert requests.post(url, json=json.loads(LATER), timeout=10).status_code == 200
    elif client == "aiohttp":

        async def send() -> int:
            async with (
                aiohttp.ClientSession() as session,
                session.post(url, json=json.loads(LATER)) as answer,
            ):
                return answer.status

        assert asyncio.run(send()) == 200
    elif client == "curl":
        curl = shutil.which("curl")
        assert curl, "this test needs curl"
        subprocess.run(
            [curl, "-sSf", url, "-H", "Content-Type: application/json", "-d", LATER], check=True
        )
    else:
        head = HEADS[client].format(host=f"127.0.0.1:{broker.port}", size=len(LATER))
        with broker.connect() as sock:
            sock.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + LATER)
            assert answers(sock, 1)[0][0] == 200
    assert fast(broker) == before + 1


ODD = {
    "an unknown parameter": lambda path: request(path + "?x=1"),
    "a key of its own": lambda path: request(path, more="Idempotency-Key: k\r\n"),
    "chunks": lambda path: (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        f"{len(LATER):x}\r\n".encode()
        + LATER
        + b"\r\n0\r\n\r\n"
    ),
    "a page": lambda _: request("/healthz", b"", method="GET"),
    "a trailer": lambda path: (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        f"{len(LATER):x};name=value\r\n".encode()
        + LATER
        + b"\r\n0\r\nTrailer: x\r\n\r\n"
    ),
    "an upgrade": lambda path: request(path, more="Connection: Upgrade\r\nUpgrade: websocket\r\n"),
    "an unknown upgrade": lambda path: request(path, more="Connection: Upgrade\r\nUpgrade: x\r\n"),
    "h2c, and more": lambda path: request(
        path, more="Connection: Upgrade\r\nUpgrade: h2c\r\nX-Request-Id: a\r\n"
    ),
    "blank lines before it": lambda path: b"\r\n\r\n" + request(path),
    "an encoding": lambda path: request(path, more="Content-Encoding: gzip\r\n"),
    "nothing there": lambda _: request("/v1/nothing"),
    "an id": lambda path: request(path + "/none", b"", method="GET"),
}
ODD_STATUS = {"an unknown parameter": 400, "an encoding": 415, "nothing there": 404, "an id": 404}
CLOSED = {"an encoding"}


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_goes_to_aiohttp_and_the_next_one_does_not(
    broker: Any, topic: str, name: str
) -> None:
    path = f"/v1/topics/{topic}/messages"
    before = fast(broker)
    with broker.connect() as sock:
        sock.sendall(request(path))
        assert answers(sock, 1)[0][0] == 200
        sock.sendall(ODD[name](path))
        assert answers(sock, 1)[0][0] == ODD_STATUS.get(name, 200)
        if name in CLOSED:
            return
        sock.sendall(request(path))
        assert answers(sock, 1)[0][0] == 200
        sock.sendall(ODD[name](path) + request(path) + ODD[name](path) * 2 + request(path))
        assert [status for status, _ in answers(sock, 5)][1::3] == [200, 200]
    assert fast(broker) == before + 4


AFTER = {"garbage": b"garbage\r\n\r\n", "a blank line": b"\r\n", "a request": request("/v1/x")}
GENERAL = {
    "an id": ("X-Request-Id: a\r\n", False),
    "the end": ("Connection: close\r\n", True),
    "an upgrade": ("Connection: Upgrade\r\nUpgrade: h2c\r\nX-Request-Id: a\r\n", False),
}
"""Headers of requests that aiohttp gets, and whether the connection ends with them."""


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("general", GENERAL)
def test_a_request_is_carried_out_whatever_follows_it(
    broker: Any, topic: str, general: str, after: str
) -> None:
    more, ends = GENERAL[general]
    path = f"/v1/topics/{topic}/messages"
    with broker.connect() as sock:
        sock.sendall(request(path, more=more) * (1 if ends else 3) + AFTER[after])
        if ends:
            assert answers(sock, 1)[0][0] == 200
            assert sock.recv(1) == b""
            return
        assert [status for status, _ in answers(sock, 3)] == [200] * 3
        if after == "a blank line":
            sock.sendall(request(path))
        status = {"garbage": 400, "a blank line": 200, "a request": 404}[after]
        assert answers(sock, 1)[0][0] == status


def test_a_body_that_comes_late_is_waited_for(broker: Any, topic: str) -> None:
    """After a second aiohttp waits for it, and the connection is as good as before."""
    wire = request(f"/v1/topics/{topic}/messages")
    before = fast(broker)
    with broker.connect() as sock:
        for cut in (10, len(wire) - 5):
            sock.sendall(wire[:cut])
            time.sleep(3)
            sock.sendall(wire[cut:] + wire)
            assert [status for status, _ in answers(sock, 2)] == [200, 200]
    assert fast(broker) == before + 2


@settings(
    max_examples=tries(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    kinds=st.lists(
        st.sampled_from(["send", "page", "key", "receive", "chunks", "bad"]), max_size=12
    ),
    cuts=st.lists(st.integers(0, 2_000), max_size=6),
)
def test_pipelined_requests_are_answered_in_their_order(
    broker: Any, topic: str, kinds: list[str], cuts: list[int]
) -> None:
    """However they are cut, and whichever of them takes the lane."""
    path = f"/v1/topics/{topic}/messages"
    wires = {
        "send": request(path),
        "page": ODD["a page"](path),
        "key": ODD["a key of its own"](path),
        "receive": request(f"/v1/topics/{topic}/receive", b'{"wait_ms":0}'),
        "chunks": ODD["chunks"](path),
        "bad": request(path, b"{"),
    }
    begins = {
        "send": b'{"id":',
        "page": b'{"status":',
        "key": b'{"id":',
        "receive": b'{"messages":',
        "chunks": b'{"id":',
        "bad": b'{"type":',
    }
    wire = b"".join(wires[kind] for kind in kinds)
    at = sorted({0, len(wire), *(cut % (len(wire) + 1) for cut in cuts)})
    with broker.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start, stop in itertools.pairwise(at):
            sock.sendall(wire[start:stop])
        for kind, (status, body) in zip(kinds, answers(sock, len(kinds)), strict=True):
            assert status == (400 if kind == "bad" else 200), (kind, body)
            assert body.startswith(begins[kind])


def test_a_long_head_in_pieces_ends_no_short_way(broker: Any, topic: str) -> None:
    path = f"/v1/topics/{topic}/messages"
    wire = request(path, more=f"X: {'x' * 16_000}\r\nY: {'y' * 9_000}\r\n")
    before = fast(broker)
    with broker.connect() as sock:
        for piece in (wire[:20_000], wire[20_000:24_000], wire[24_000:] + request(path)):
            sock.sendall(piece)
            time.sleep(0.1)
        assert [status for status, _ in answers(sock, 2)] == [200, 200]
    assert fast(broker) == before + 1


def test_what_stands_behind_a_long_poll_is_answered_after_it(broker: Any, topic: str) -> None:
    """Also when it is much, and aiohttp's."""
    page = request("/healthz", b"", f"X: {'x' * 900}\r\n", method="GET")
    with broker.connect() as sock:
        sock.sendall(request(f"/v1/topics/{topic}/receive", b'{"wait_ms":500}'))
        sock.sendall(page * 20)
        assert {status for status, _ in answers(sock, 21)} == {200}
        sock.sendall(page)
        assert answers(sock, 1)[0][0] == 200


def test_a_client_that_reads_no_answers_is_not_answered_without_end(
    broker: Any, topic: str
) -> None:
    """It sends requests ahead; they wait in its own buffers, and are answered once it reads."""
    wire = request(f"/v1/topics/{topic}/receive", b'{"wait_ms":0}')
    with broker.connect() as sock:
        sock.setblocking(False)
        sent = 0
        idle_s = 0.0
        while idle_s < 1.0:
            try:
                sent += sock.send((wire * 200)[sent % len(wire) :])
                idle_s = 0.0
            except BlockingIOError:
                time.sleep(0.05)
                idle_s += 0.05
        assert sent < 64 << 20
        sock.settimeout(20)
        whole = sent // len(wire)
        assert {status for status, _ in answers(sock, whole)} == {200}


def test_a_broker_that_ends_answers_what_waits(start_broker: Callable[..., Any]) -> None:
    broker = start_broker()
    with broker.connect() as sock:
        # Twice as long as the socket waits for the answer.
        sock.sendall(request("/v1/topics/t/receive", b'{"wait_ms":60000}'))
        while fast(broker) == 0:
            time.sleep(0.01)
        broker.terminate()
        status, body = answers(sock, 1)[0]
        assert (status, json.loads(body)["messages"]) == (200, [])
        assert broker.wait() == 0
    broker.assert_clean_logs()
