"""A receiver of pushes in threads of its own, for brokers that are processes."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from http.server import ThreadingHTTPServer

from tests.http_server import Handler, served


class Sink(ThreadingHTTPServer):
    """A receiver that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), SinkHandler)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.arrived = threading.Semaphore(0)
        self.status = 204
        self.delay_s = 0.0
        """How long it takes for an answer."""
        self.times: list[tuple[bytes, float]] = []
        """When each body came, by the steady clock in s."""


class SinkHandler(Handler):
    server: Sink

    def respond(self) -> None:
        body = self.read()
        headers = {name.lower(): text for name, text in self.headers.items()}
        self.server.got.append((headers, body))
        self.server.times.append((body, time.monotonic()))
        time.sleep(self.server.delay_s)
        self.answer(self.server.status)
        self.server.arrived.release()


def started_sink() -> AbstractContextManager[Sink]:
    """One that serves."""
    return served(Sink())
