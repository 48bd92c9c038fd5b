"""A receiver of pushes in threads of its own, for brokers that are processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Sink(ThreadingHTTPServer):
    """A receiver that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.arrived = threading.Semaphore(0)
        self.status = 204
        self.delay_s = 0.0
        """How long it takes for an answer."""
        self.times: list[tuple[bytes, float]] = []
        """When each body came, by the steady clock in s."""


class Handler(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): text for name, text in self.headers.items()}
        self.server.got.append((headers, body))
        self.server.times.append((body, time.monotonic()))
        time.sleep(self.server.delay_s)
        self.send_response(self.server.status)
        self.end_headers()
        self.server.arrived.release()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def started_sink() -> Iterator[Sink]:
    """One that serves."""
    with Sink() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
