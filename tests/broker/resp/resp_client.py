"""A plain client of the Redis-compatible endpoint: arrays out, decoded replies in."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Any

import hiredis

TIMEOUT_S = 60


class RespClient:
    """One connection."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self.sock: socket.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock)
        self._reader = hiredis.Reader()

    def send(self, *argv: Any) -> None:
        """Send a command."""
        self.sock.sendall(hiredis.pack_command(tuple(argv)))

    def reply(self) -> Any:
        """The next reply; errors are values."""
        while (reply := self._reader.gets()) is False:
            data = self.sock.recv(65_536)
            if not data:
                raise ConnectionError("closed")
            self._reader.feed(data)
        return reply

    def call(self, *argv: Any) -> Any:
        """Send a command and give its reply."""
        self.send(*argv)
        return self.reply()

    def pipeline(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Send commands at once and give all replies."""
        self.sock.sendall(b"".join(hiredis.pack_command(command) for command in commands))
        return [self.reply() for _ in commands]

    def close(self) -> None:
        """End."""
        self.sock.close()


def is_closed(client: RespClient) -> bool:
    """Whether the broker has closed the connection, or does so soon."""
    with suppress(ConnectionResetError):
        return client.sock.recv(1) == b""
    return True


def is_error(reply: Any, start: str) -> bool:
    """Whether a reply is an error that begins so."""
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith(start)
