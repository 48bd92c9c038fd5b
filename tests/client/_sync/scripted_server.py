"""Servers made of bare sockets: each connection follows a script.

A server is a thread that takes connections one after another and follows a script for each: what
to read, what to write, when to hang up.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Wire:
    """One connection at the server's side."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.read = b""

    def request(self) -> bytes:
        """Read one whole request; b"" when the client has gone."""
        while b"\r\n\r\n" not in self.read:
            if not self._more():
                return b""
        head, _, rest = self.read.partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        while len(rest) < length:
            if not self._more():
                return b""
            rest = self.read.partition(b"\r\n\r\n")[2]
        self.read = rest[length:]
        return head + b"\r\n\r\n" + rest[:length]

    def _more(self) -> bool:
        data = self.socket.recv(65536)
        self.read += data
        return bool(data)


class Server:
    """Runs a script for each connection and keeps the requests."""

    def __init__(self, script: Callable[[Wire], object]) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._run, args=(connected,), daemon=True).start()

    def _run(self, connected: socket.socket) -> None:
        wire = Wire(connected)
        original = wire.request

        def request() -> bytes:
            found = original()
            if found:
                self.requests.append(found)
            return found

        wire.request = request  # type: ignore[method-assign]
        try:
            self._script(wire)
        except OSError:
            return
        finally:
            wire.socket.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def serving(script: Callable[[Wire], object]) -> Iterator[Server]:
    server = Server(script)
    try:
        yield server
    finally:
        server.close()
