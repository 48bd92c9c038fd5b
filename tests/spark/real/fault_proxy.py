"""Somebody between Spark and a real broker, who answers in its place or loses its answers.

It is given faults as a FakeBroker is. What it carries it carries as it is: the broker decides all
else, and the test looks at the broker itself.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable
from urllib.parse import urlencode, urlsplit

from tests.client.spark.misbehaving_server import Call, MisbehavingServer, Reply

OF_A_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
CALL_S = 60


class FaultProxy(MisbehavingServer):
    """Use as `with FaultProxy(broker.url) as proxy:`; its address is `proxy.url`."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self.target = target
        self.asking: Callable[[Call], None] = lambda call: None
        """Called before a call is carried out; while it waits, only this call does."""
        self.answering: Callable[[Call, int], None] = lambda call, status: None
        """Called with the status of what was carried out, before anybody is told."""

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

    def carry_out(self, call: Call) -> Reply | None:
        self.asking(call)
        try:
            status, headers, body = self.carry(call)
        except (OSError, http.client.HTTPException):
            return None
        self.answering(call, status)
        return Reply(status, body, headers)


def _address(call: Call) -> str:
    return f"{call.path}?{urlencode(call.query)}" if call.query else call.path


def _kept(headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in OF_A_CONNECTION}
