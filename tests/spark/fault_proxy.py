"""Somebody between Spark and a real broker, who answers in its place or loses its answers.

It is given faults as a FakeBroker is. What it carries it carries as it is: the broker decides all
else, and the test looks at the broker itself.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.client.spark.fake_broker import Call, Fault

OF_A_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
CALL_S = 60


class FaultProxy:
    """Use as `with FaultProxy(broker.url) as proxy:`; its address is `proxy.url`."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.calls: list[Call] = []
        self.fault: Callable[[Call], Fault | None] = lambda call: None
        self.answering: Callable[[Call, int], None] = lambda call, status: None
        """Called with the status of what was carried out, before anybody is told."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
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

    def carry(self, call: Call) -> tuple[int, dict[str, str], bytes]:
        """The broker's own answer. Raises OSError or HTTPException where it gives none."""
        target = urlsplit(self.target)
        connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=CALL_S)
        try:
            connection.request(call.method, _address(call), call.body, _kept(call.headers))
            answer = connection.getresponse()
            return answer.status, _kept(dict(answer.getheaders())), answer.read()
        finally:
            connection.close()

    def _judged(self, call: Call) -> Fault | None:
        with self._lock:
            self.calls.append(call)
            return self.fault(call)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # An answer is not held back until a delayed ACK.
            disable_nagle_algorithm = True

            def log_message(self, format: str, *args: object) -> None:
                pass

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
                fault = proxy._judged(call)
                if fault is not None and fault.status:
                    self._reply(fault.status, fault.headers, json.dumps(fault.document).encode())
                    return
                try:
                    status, headers, body = proxy.carry(call)
                except (OSError, http.client.HTTPException):
                    self.close_connection = True
                    return
                proxy.answering(call, status)
                if fault is not None and fault.lose_answer:
                    self.close_connection = True
                    return
                self._reply(status, headers, body)

            def _reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    # Whoever asked is dead; some tests see to that.
                    self.close_connection = True

        return Handler


def _address(call: Call) -> str:
    return f"{call.path}?{urlencode(call.query)}" if call.query else call.path


def _kept(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in OF_A_CONNECTION}
