"""The addresses on which Redis clients are accepted over TLS.

Name resolution, and a kernel without IPv6, are replaced; the sockets are real.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from typing import Any, NoReturn

import pytest

from delaylog.broker.resp import tls_listener
from delaylog.broker.resp.tls_listener import TlsListener

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
        bound = [sock.getsockname() for sock, _ in listener._listening]
        assert {address[1] for address in bound} == {port}
        listener.close()
        return bound

    return asyncio.run(main())


def _listener() -> TlsListener:
    context = ssl.create_default_context()
    return TlsListener(context, make=asyncio.Protocol, is_full=lambda: True)


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
    async def fail(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    async def main() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_accept", fail)
        listener = _listener()
        await listener.start("127.0.0.1", 0, 5)
        await asyncio.sleep(0.3)
        listener.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert len([line for line in caplog.messages if "cannot accept" in line]) == 1
