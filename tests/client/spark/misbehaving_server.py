"""An HTTP server in threads of the test that answers, or misbehaves as a test tells it.

A test gives it faults: an answer in place of a call, or the loss of the answer of one that was
carried out. What a call does, whoever extends this says.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


@dataclass
class Call:
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def shape(self) -> dict[str, Any]:
        found = json.loads(self.body or b"{}")
        assert isinstance(found, dict)
        return found


@dataclass
class Fault:
    """What becomes of a call: an answer instead of it, or its answer lost."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)
    lose_answer: bool = False


@dataclass
class Reply:
    """An answer to be sent."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


class MisbehavingServer(ABC):
    """Use by `with`; its address is `url`."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.fault: Callable[[Call], Fault | None] = lambda call: None
        self._lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        # Asked often whether to stop: it is stopped once a test.
        serve = partial(self._server.serve_forever, poll_interval=0.01)
        threading.Thread(target=serve, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def called(self, method: str, ending: str) -> list[Call]:
        with self._lock:
            calls = list(self.calls)
        return [call for call in calls if call.method == method and call.path.endswith(ending)]

    @abstractmethod
    def carry_out(self, call: Call) -> Reply | None:
        """Do what is asked; None closes the connection without an answer."""

    def reply_to(self, call: Call) -> Reply | None:
        """The answer that goes out; None closes the connection."""
        with self._lock:
            self.calls.append(call)
            fault = self.fault(call)
        if fault is not None and fault.status:
            return Reply(fault.status, json.dumps(fault.document).encode(), fault.headers)
        reply = self.carry_out(call)
        return None if fault is not None and fault.lose_answer else reply

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # An answer goes out whole and at once: its second piece would wait for a delayed ACK.
            wbufsize = -1
            disable_nagle_algorithm = True

            def log_message(self, format: str, *args: object) -> None:
                """A test that fails shows the calls itself."""

            def do_GET(self) -> None:
                self._serve()

            def do_POST(self) -> None:
                self._serve()

            def _serve(self) -> None:
                parts = urlsplit(self.path)
                call = Call(
                    self.command,
                    parts.path,
                    {name: values[-1] for name, values in parse_qs(parts.query).items()},
                    dict(self.headers.items()),
                    self.rfile.read(int(self.headers.get("Content-Length", 0))),
                )
                reply = server.reply_to(call)
                if reply is None:
                    self.close_connection = True
                    return
                self.send_response_only(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                try:
                    self.end_headers()
                    self.wfile.write(reply.body)
                    self.wfile.flush()
                except OSError:
                    # Whoever asked is dead; some tests see to that.
                    self.close_connection = True

        return Handler
