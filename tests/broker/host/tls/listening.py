"""A TLS listener that answers each line with the identities of its client, on either event loop."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import uvloop

from delaylog.broker.host.config import TlsConfig
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.tls.contexts import ServerTls, client_certificate
from delaylog.broker.host.tls.listener import TlsListener
from delaylog.broker.host.watch.reloader import Reloader
from tests.certificates import HOSTS, Authority, write_private

TIMEOUT_S = 10
LOOPS: dict[str, Callable[[Any], Any]] = {"asyncio": asyncio.run, "uvloop": uvloop.run}


class Files:
    """The files of a listener, and those of its clients, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority("servers")
        self.renew()

    def renew(self, name: str = "broker") -> None:
        """Write a new certificate for the listener."""
        write_private(self.folder / "broker.pem", self.authority.issue(name, hosts=HOSTS))

    def trust(self, *authorities: Authority) -> None:
        """Write the client CAs."""
        (self.folder / "clients.pem").write_bytes(b"".join(each.pem for each in authorities))

    def config(self, policy: str = "intermediate") -> TlsConfig:
        """The configuration of the listener."""
        client_ca = self.folder / "clients.pem"
        return TlsConfig(
            cert=str(self.folder / "broker.pem"),
            client_ca=str(client_ca) if client_ca.exists() else None,
            policy=policy,
        )

    def client(
        self, issuer: Authority | None = None, name: str = "c", **how: Any
    ) -> ssl.SSLContext:
        """The context of a client, with a certificate of `issuer` if one is given."""
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        if issuer is not None:
            path = self.folder / "client.pem"
            context.load_cert_chain(write_private(path, issuer.issue(name, **how)))
        return context


class Echo(asyncio.Protocol):
    """Answers anything with the identities of the client."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._listening.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listening.open.discard(self)

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        identities = client_certificate(self.transport).identities
        self.transport.write(json.dumps(identities).encode() + b"\n")


class Listening:
    """The listener under test, on the running loop."""

    def __init__(self, config: TlsConfig, *, clients_max: int = 1_000) -> None:
        self.tls = ServerTls(config)
        self.reloader = Reloader(REAL)
        self.reloader.register("tls", self.tls.files, self.tls.read)
        self.open: set[Echo] = set()
        self.listener = TlsListener(
            self.tls,
            client="a client",
            make=lambda: Echo(self),
            is_full=lambda: len(self.open) + self.listener.handshakes >= clients_max,
            transports=lambda: [each.transport for each in self.open],
        )
        self.port = 0

    async def __aenter__(self) -> Listening:
        self.port = await self.listener.start("127.0.0.1", 0, 100)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.reloader.stop()
        self.listener.close()
        for each in self.open:
            if each.transport is not None:
                each.transport.abort()
        await asyncio.sleep(0.05)

    def dial(self, context: ssl.SSLContext, **how: Any) -> ssl.SSLSocket:
        """A connection of a client, for a thread."""
        return self.secure(self.connect(), context, **how)

    def connect(self) -> socket.socket:
        """A connection that has not begun its handshake."""
        return socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)

    @staticmethod
    def secure(sock: socket.socket, context: ssl.SSLContext, **how: Any) -> ssl.SSLSocket:
        """The handshake of a client. A refused one closes the connection."""
        try:
            return context.wrap_socket(sock, server_hostname="localhost", **how)
        except OSError:
            sock.close()
            raise


def ask(sock: ssl.SSLSocket) -> list[str]:
    """The identities that the listener sees. Raises OSError once the connection is closed."""
    sock.sendall(b"x")
    line = b""
    while not line.endswith(b"\n"):
        part = sock.recv(4_096)
        if not part:
            raise ConnectionResetError("closed")
        line += part
    found: list[str] = json.loads(line)
    return found


def serve(loop: str, main: Callable[[], Awaitable[None]]) -> None:
    """Run a test on one of the two event loops."""
    LOOPS[loop](main())
