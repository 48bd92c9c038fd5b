"""The addresses on which clients are accepted over TLS, and connections that begin no TLS.

Name resolution, and a kernel without IPv6, are replaced; the sockets are real.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
import uvloop

from delaylog.broker.host.tls import listener as tls_listener
from delaylog.broker.host.tls.contexts import ServerTls
from delaylog.broker.host.tls.failed_handshakes import AlertingContext, alerting
from delaylog.broker.host.tls.listener import Acceptor, TlsListener
from tests.broker.host.tls.listening import LOOPS, Files, Listening, ask, serve
from tests.waiting import until

V4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
V6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))
TAKEN = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))


def start(monkeypatch: pytest.MonkeyPatch, found: list[Any], create: Any = None) -> list[Any]:
    """Listen on what a name resolves to; returns the addresses that were bound."""
    if create is not None:
        monkeypatch.setattr(tls_listener.socket, "create_server", create)

    async def main() -> list[Any]:
        async def resolve(*_: object, **__: object) -> list[Any]:
            return found

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        listener = _listener()
        port = await listener.start("name", 0, 5)
        bound = [each._listener.getsockname() for each in listener._acceptors]
        assert {address[1] for address in bound} == {port}
        listener.close()
        return bound

    return asyncio.run(main())


class _NoFiles:
    """A `ServerTls` without certificates, for listeners that nobody connects to."""

    def __init__(self) -> None:
        self.on_exchange: list[Any] = []


def _listener() -> TlsListener:
    return TlsListener(
        cast(ServerTls, _NoFiles()),
        client="a client",
        make=asyncio.Protocol,
        is_full=lambda: True,
        transports=list,
    )


class Created:
    """`socket.create_server`, which fails for some addresses and notes what it was asked for."""

    def __init__(self, failing: dict[str, int]) -> None:
        self.failing = failing
        self.asked: list[Any] = []
        self.sockets: list[socket.socket] = []
        self._create = socket.create_server

    def __call__(self, address: Any, *, family: int, backlog: int) -> socket.socket:
        self.asked.append((family, address))
        if address[0] in self.failing:
            raise OSError(self.failing[address[0]], "refused")
        self.sockets.append(self._create(("127.0.0.1", 0), backlog=backlog))
        return self.sockets[-1]


@pytest.mark.parametrize("error", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_a_family_that_the_kernel_lacks_is_skipped(
    monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    bound = start(monkeypatch, [V6, V4], Created({"::1": error}))
    assert [address[0] for address in bound] == ["127.0.0.1"]
    with pytest.raises(OSError, match="refused"):
        start(monkeypatch, [V6], Created({"::1": error}))


def test_the_interface_of_a_link_local_address_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    create = Created({})
    address = ("fe80::1", 0, 0, 7)
    start(monkeypatch, [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", address)], create)
    assert create.asked == [(socket.AF_INET6, address)]


def test_a_second_address_that_is_taken_closes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    create = Created({"192.0.2.1": errno.EADDRINUSE})
    with pytest.raises(OSError, match="refused"):
        start(monkeypatch, [V4, TAKEN], create)
    assert [sock.fileno() for sock in create.sockets] == [-1]


def test_failed_accepts_are_logged_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    async def main() -> None:
        monkeypatch.setattr(socket.socket, "accept", fail)
        listener = _listener()
        port = await listener.start("127.0.0.1", 0, 5)
        with socket.create_connection(("127.0.0.1", port)):
            await until(lambda: caplog.messages)
            await asyncio.sleep(0.3)
        listener.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert len([line for line in caplog.messages if "cannot accept" in line]) == 1


@pytest.mark.parametrize("loop", LOOPS)
def test_connections_in_their_handshake_are_counted_and_end(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Three that send nothing, or a byte at a time, fill the listener until their time is over."""
    monkeypatch.setattr(tls_listener, "HANDSHAKE_SECONDS", 3.0)
    files = Files(tmp_path)

    async def main() -> None:
        async with Listening(files.config(), clients_max=3) as listening:
            # What earlier tests have left goes now, and not between two counts.
            gc.collect()
            before = sockets()
            slow = [await asyncio.to_thread(listening.connect) for _ in range(3)]
            slow[0].sendall(b"\x16")
            await until(lambda: listening.listener.handshakes == 3)
            # The clients' ends and the listener's: no more, since they fill a share of descriptors.
            assert sockets() == before + 6
            with await asyncio.to_thread(listening.connect) as more:
                assert await asyncio.to_thread(more.recv, 1) == b""
            slow[0].sendall(b"\x03")
            await until(lambda: listening.listener.handshakes == 0)
            with await asyncio.to_thread(listening.dial, files.client()):
                await until(lambda: len(listening.open) == 1)
            for sock in slow:
                sock.close()

    serve(loop, main)
    assert not caplog.messages


def sockets() -> int:
    """The number of open sockets of this process."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


@pytest.mark.parametrize("loop", LOOPS)
def test_too_many_handshakes_close_the_oldest(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients that do begin are served meanwhile, and no descriptor is lost."""
    monkeypatch.setattr(tls_listener, "HANDSHAKES_MAX", 3)
    files = Files(tmp_path)

    async def main() -> None:
        async with Listening(files.config()) as listening:
            before = sockets()
            idle = [await asyncio.to_thread(listening.connect) for _ in range(6)]
            for sock in idle[:3]:
                assert await asyncio.to_thread(sock.recv, 1) == b""
            for _ in range(5):
                with await asyncio.to_thread(listening.dial, files.client()) as client:
                    assert await asyncio.to_thread(ask, client) == []
            # The first of them closed one more.
            assert listening.listener.handshakes == 2
            for sock in idle:
                sock.close()
            await until(lambda: not (listening.listener.handshakes or listening.open))
            await until(lambda: sockets() == before)

    serve(loop, main)
    assert caplog.messages == ["a client is closed: too many have begun no TLS yet"]


@pytest.mark.parametrize("loop", LOOPS)
def test_clients_without_tls_are_named_once(
    loop: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Plain requests end their connection only. Clients that come and go are not worth a line."""
    files = Files(tmp_path)

    def send(listening: Listening, data: bytes) -> bytes:
        with listening.connect() as sock:
            sock.sendall(data)
            try:
                return sock.recv(1_000)
            except ConnectionResetError:
                return b""

    async def main() -> None:
        async with Listening(files.config()) as listening:
            for data in (b"GET / HTTP/1.1\r\n\r\n", b"*1\r\n$4\r\nPING\r\n", b"PING\r\n"):
                assert b"HTTP" not in await asyncio.to_thread(send, listening, data)
            (await asyncio.to_thread(listening.connect)).close()
            await until(lambda: listening.listener.handshakes == 0)
            with await asyncio.to_thread(listening.dial, files.client()):
                await until(lambda: len(listening.open) == 1)

    serve(loop, main)
    assert caplog.messages == ["a client at 127.0.0.1 does not speak TLS, which this port requires"]


async def test_only_the_connection_of_a_block_sends_its_alert() -> None:
    """A reload that a client asks for runs in the context of its connection, and shakes hands in
    memory.
    """
    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)

    def fail() -> None:
        incoming = ssl.MemoryBIO()
        made = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
        client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), incoming, False, "a")
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        # It has no certificate.
        with pytest.raises(ssl.SSLError):
            made.do_handshake()

    async def reload() -> None:
        await asyncio.sleep(0)
        fail()

    near, far = socket.socketpair()
    with near, far:
        with alerting(near):
            reloading = asyncio.create_task(reload())
            fail()
        assert far.recv(64).startswith(b"\x15\x03")
        await reloading
        near.shutdown(socket.SHUT_WR)
        assert far.recv(64) == b""


# ------------------------- Accepting connections one by one: none is left open when accepting ends


MAKE_LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [
    asyncio.new_event_loop,
    uvloop.new_event_loop,
]


@pytest.mark.parametrize("make_loop", MAKE_LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("turns", range(6))
async def test_the_end_loses_no_connection(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    turns: int,
) -> None:
    """In whichever turn of the loop a connection comes: if it was accepted, it was passed on.

    A socket that was not passed on shows as a ResourceWarning, which is an error here.
    """
    passed: list[socket.socket] = []

    def fail(error: OSError) -> None:
        raise error

    acceptor = Acceptor(socket.create_server(("127.0.0.1", 0)), passed.append, fail)
    with socket.create_connection(("127.0.0.1", acceptor.port)):
        for _ in range(turns):
            await asyncio.sleep(0)
        acceptor.close()
        await asyncio.sleep(0.01)
        for sock in passed:
            sock.close()
        gc.collect()
