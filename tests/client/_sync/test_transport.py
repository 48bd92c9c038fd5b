"""The transport for threads against servers made of bare sockets, which do what no good one does.

What is asked of the transport: an answer is whole or
an error, a kept connection that died is not used, nothing is sent twice, and forks, threads and
`close` in the middle do no harm.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delaylog.client import AnswerLost, NotReached, TooLarge
from delaylog.client._async.transport import AsyncTransport
from delaylog.client._sync.transport import Transport
from delaylog.client.calls.call import Call, json_call
from delaylog.client.wire.credentials import Credentials
from delaylog.client.wire.leader_route import LeaderRoute
from tests.certificates import self_signed, write_private
from tests.client._sync.scripted_server import Wire, serving
from tests.programs import forked, status_of

TOKEN = "s3cret-token"
SAID = b'{"said": 1}'
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n" + SAID
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" + SAID[:5]
CHUNKED += b"\r\n6\r\n" + SAID[5:] + b"\r\n0\r\n\r\n"
CLOSING = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + SAID
CALL: Call[dict[str, Any]] = json_call("POST", "/v1/x", {"n": 1})


@contextmanager
def transport(url: str, tls: Any = None, **options: Any) -> Iterator[Transport]:
    opened = Transport(LeaderRoute(url, (), Credentials(token=TOKEN, tls=tls)), **options)
    try:
        yield opened
    finally:
        opened.close()


def forever(answer: bytes) -> Callable[[Wire], None]:
    """A good server."""

    def script(wire: Wire) -> None:
        while wire.request():
            wire.socket.sendall(answer)

    return script


@pytest.mark.parametrize(
    "answer", [GOOD, CHUNKED, CLOSING, b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD]
)
def test_an_answer_that_breaks_off_anywhere_is_a_lost_answer(answer: bytes) -> None:
    """Cut at every byte; only what is whole is an answer. Each request goes out once."""
    cuts = list(range(len(answer) + 1))
    left = iter(cuts)

    def script(wire: Wire) -> None:
        wire.request()
        wire.socket.sendall(answer[: next(left)])

    whole, shown = 0, list[str]()
    with serving(script) as server, transport(server.url) as opened:
        for _ in cuts:
            try:
                assert opened.carry(CALL) == {"said": 1}
                whole += 1
            except AnswerLost as error:
                shown.append("".join(traceback.format_exception(error)))
        assert len(server.requests) == len(cuts)
    # A body without a length is whole wherever it ends, so JSON has to say that it is not.
    assert (whole, len(shown)) == (1, len(answer))
    assert TOKEN not in "".join(shown)


@pytest.mark.parametrize("kind", [Transport, AsyncTransport])
def test_no_answer_at_all_may_be_due_to_tls(tmp_path: Path, kind: Any) -> None:
    """A port for TLS closes plain connections, and those of certificates that it refuses."""
    path = write_private(tmp_path / "both.pem", self_signed())
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(path)

    def script(wire: Wire) -> None:
        if wire.socket.recv(1, socket.MSG_PEEK) == b"\x16":
            wire.socket = server_side.wrap_socket(wire.socket, server_side=True)
        wire.request()

    async def ask(url: str) -> None:
        tls = ssl.create_default_context(cafile=path)
        opened = kind(LeaderRoute(url, (), Credentials(tls=tls)))
        try:
            asked = opened.carry(CALL)
            if isinstance(opened, AsyncTransport):
                await asked
        finally:
            closed = opened.close()
            if isinstance(opened, AsyncTransport):
                await closed

    with serving(script) as server:
        with pytest.raises(AnswerLost, match=r"without an answer \(.*use https then"):
            asyncio.run(ask(server.url))
        with pytest.raises(AnswerLost, match=r"without an answer \(.*certificate"):
            asyncio.run(ask(server.url.replace("http:", "https:")))


def test_a_slow_answer_in_single_bytes() -> None:
    def script(wire: Wire) -> None:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while wire.request():
            for at in range(len(CHUNKED)):
                wire.socket.sendall(CHUNKED[at : at + 1])

    with serving(script) as server, transport(server.url) as opened:
        for _ in range(3):
            assert opened.carry(CALL) == {"said": 1}
        assert server.connections == 1


def test_the_request_as_it_goes_out() -> None:
    with serving(forever(GOOD)) as server, transport(server.url + "/prefix/") as opened:
        opened.carry(CALL)
        opened.carry(json_call("GET", "/v1/y?a=b"))
    host = server.url.removeprefix("http://").encode()
    post, get = server.requests
    assert post.startswith(b"POST /prefix/v1/x HTTP/1.1\r\nHost: " + host + b"\r\n")
    assert b"\r\nAuthorization: Bearer s3cret-token\r\n" in post
    assert post.endswith(b'\r\nContent-Length: 8\r\n\r\n{"n": 1}')
    assert get.startswith(b"GET /prefix/v1/y?a=b HTTP/1.1\r\n")
    assert b"Content-Length" not in get


def test_a_connection_serves_many_calls_until_it_is_told_to_close() -> None:
    with serving(forever(GOOD)) as server, transport(server.url) as opened:
        for _ in range(5):
            opened.carry(CALL)
        assert server.connections == 1
    answer = GOOD.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
    with serving(forever(answer)) as server, transport(server.url) as opened:
        for _ in range(3):
            opened.carry(CALL)
        assert server.connections == 3


@pytest.mark.parametrize("unasked", [b"", b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
def test_a_kept_connection_that_ended_meanwhile_is_not_used(unasked: bytes) -> None:
    """It was closed, or something came unasked. A send on it would be lost and the client would not
    know, so the client looks first.
    """
    ended = threading.Event()

    def script(wire: Wire) -> None:
        wire.request()
        wire.socket.sendall(GOOD)
        if unasked:
            wire.socket.sendall(unasked)
        else:
            wire.socket.shutdown(socket.SHUT_RDWR)
        ended.set()
        wire.request()

    with serving(script) as server, transport(server.url) as opened:
        for _ in range(5):
            assert opened.carry(CALL) == {"said": 1}
            assert ended.wait(30)
            ended.clear()
        assert server.connections == 5


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", b"\x00" * 40, b"HTTP/1.1 101 No\r\n\r\n"])
def test_garbage_is_a_lost_answer(answer: bytes) -> None:
    with (
        serving(forever(answer)) as server,
        transport(server.url) as opened,
        pytest.raises(AnswerLost),
    ):
        opened.carry(CALL)


def test_a_refusal_before_the_body_was_read_is_told() -> None:
    """The server answers and hangs up while megabytes are still on their way."""
    problem = b'{"code": "too_large", "detail": "at most 5 bytes"}'

    def script(wire: Wire) -> None:
        wire.socket.recv(1000)
        head = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        wire.socket.sendall(head % len(problem) + problem)
        wire.socket.shutdown(socket.SHUT_WR)
        while wire.socket.recv(1 << 20):
            pass

    call = json_call("POST", "/v1/x", "x" * (8 << 20))
    with (
        serving(script) as server,
        transport(server.url) as opened,
        pytest.raises(TooLarge, match="at most 5 bytes"),
    ):
        opened.carry(call)


def test_a_call_that_takes_too_long() -> None:
    """Silence, and drops of an answer that never ends."""
    for drip in (b"", b"x"):

        def script(wire: Wire, drip: bytes = drip) -> None:
            wire.request()
            wire.socket.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while wire.socket.send(drip or b""):
                threading.Event().wait(0.01)
            wire.request()

        with (
            serving(script) as server,
            transport(server.url, timeout_s=1) as opened,
            pytest.raises(AnswerLost),
        ):
            opened.carry(CALL)


def test_a_header_cannot_break_out() -> None:
    call = replace(CALL, headers={"Idempotency-Key": "a\r\nX: y"})
    with serving(forever(GOOD)) as server, transport(server.url) as opened:
        with pytest.raises(ValueError, match="Idempotency-Key"):
            opened.carry(call)
        assert server.requests == []
        assert opened.carry(CALL) == {"said": 1}


def test_so_many_connections_are_kept() -> None:
    """Beyond that number, idle connections are closed."""
    gate = threading.Barrier(4)

    def script(wire: Wire) -> None:
        while wire.request():
            gate.wait(30)
            wire.socket.sendall(GOOD)

    with serving(script) as server, transport(server.url, connections_max=2) as opened:
        for connections in (4, 6):
            threads = [threading.Thread(target=opened.carry, args=(CALL,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert server.connections == connections


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_connections_of_its_own() -> None:
    """The parent's stay usable, also after the child has closed its client and ended."""
    with serving(forever(GOOD)) as server, transport(server.url) as opened:
        opened.carry(CALL)

        def child() -> None:
            assert opened.carry(CALL) == {"said": 1}
            opened.close()

        assert status_of(forked(child)) == 0
        opened.carry(CALL)
        assert server.connections == 2
        assert len(server.requests) == 3


def test_https_with_a_certificate_that_is_trusted_or_not(tmp_path: Path) -> None:
    path = write_private(tmp_path / "both.pem", self_signed())
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(path)

    def script(wire: Wire) -> None:
        wire.socket = server_side.wrap_socket(wire.socket, server_side=True)
        forever(GOOD)(wire)

    with serving(script) as server:
        url = server.url.replace("http:", "https:")
        with transport(url, tls=ssl.create_default_context(cafile=path)) as opened:
            for _ in range(3):
                assert opened.carry(CALL) == {"said": 1}
        assert server.connections == 1
        with transport(url) as opened, pytest.raises(NotReached, match="certificate"):
            opened.carry(CALL)
        assert len(server.requests) == 3
