"""Small HTTP servers in threads of a test, for programs and brokers that call them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TypeVar

Server = TypeVar("Server", bound=HTTPServer)


class Handler(BaseHTTPRequestHandler, ABC):
    """`respond` answers each request; nothing is logged."""

    @abstractmethod
    def respond(self) -> None:
        """Answer the request."""

    def do_GET(self) -> None:
        self.respond()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 (names of the base)

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def read(self) -> bytes:
        """The body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


@contextmanager
def served(server: Server) -> Iterator[Server]:
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def url_of(server: HTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"
