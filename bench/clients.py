"""The scripts of the load generators: bulk sending, receive-and-ack, and plain questions.

Each is a `Script` for a `Driver`. The one rule: a script notes raw facts (counts, refs, receipt
times) and works nothing out while the clock runs.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt
from load import Buffer, LoadError, expect_ok
from wire import AckTemplate, SendTemplate, int64_column, receive_request, unpack

Int64Array = npt.NDArray[np.int64]


class DuePool:
    """A long column of due times of which each batch takes the next piece, round and round."""

    def __init__(self, dues: Int64Array) -> None:
        self._bytes = memoryview(np.ascontiguousarray(dues, "<i8").tobytes())
        self._next = 0

    def take(self, n: int) -> memoryview:
        """The next n due times as bytes."""
        start = self._next
        if start + 8 * n > len(self._bytes):
            start = 0
        self._next = start + 8 * n
        return self._bytes[start : self._next]


class BulkSender:
    """Sends a number of batches over all lanes and checks what was accepted."""

    def __init__(self, template: SendTemplate, pool: DuePool, batches: int) -> None:
        self._template = template
        self._pool = pool
        self._left = batches
        self._answers = 0

    def request(self, lane: int) -> Sequence[Buffer] | None:  # noqa: ARG002 (a Script)
        if not self._left:
            return None
        self._left -= 1
        return self._template.pieces(self._pool.take(self._template.n))

    def answer(self, lane: int, status: int, body: memoryview) -> None:  # noqa: ARG002
        expect_ok(status, body)
        # Every answer costs client time, so only some are unpacked: a wrong n shows at once.
        if self._answers % 64 == 0:
            self.check(body)
        self._answers += 1

    def check(self, body: memoryview) -> None:
        """The broker says that it took all rows."""
        n = unpack(body)["n"]
        if n != self._template.n:
            raise LoadError(f"sent {self._template.n} messages, the answer says {n}")


class BareSender(BulkSender):
    """The same requests to a handler that only reads them."""

    def check(self, body: memoryview) -> None:
        """Nothing to check: the answer is fixed."""


class Until:
    """Sends what `make` gives for a lane until a time (of `time.perf_counter()`), and notes how
    long each answer took. `rows` is the messages of one request."""

    def __init__(
        self, make: Callable[[int], Buffer], lanes: int, until: float, *, rows: int = 1
    ) -> None:
        self._make = make
        self._until = until
        self._rows = rows
        self._sent_at = [0.0] * lanes
        self.latencies_s: list[float] = []

    def request(self, lane: int) -> Sequence[Buffer] | None:
        now = time.perf_counter()
        if now >= self._until:
            return None
        self._sent_at[lane] = now
        return (self._make(lane),)

    def answer(self, lane: int, status: int, body: Any) -> None:
        self.latencies_s.append(time.perf_counter() - self._sent_at[lane])
        expect_ok(status, body)

    def messages(self) -> int:
        """Messages that were accepted."""
        return len(self.latencies_s) * self._rows


class Fixed(Until):
    """Sends ready requests round and round."""

    def __init__(
        self, requests: Sequence[bytes], lanes: int, until: float, *, rows: int = 1
    ) -> None:
        turn = cycle(requests)
        super().__init__(lambda _lane: next(turn), lanes, until, rows=rows)


class Receipt:
    """What one receive brought: when it was in the program's hands, and the raw answer."""

    __slots__ = ("at_ms", "fields")

    def __init__(self, at_ms: float, fields: dict[str, Any]) -> None:
        self.at_ms = at_ms
        self.fields = fields


class Consumer:
    """Receives and acks on every lane until `target` messages are acked or time is up.

    The bodies are unpacked, as a consumer would, and dropped.
    """

    def __init__(
        self,
        topic: str,
        *,
        target: int,
        rows_max: int,
        wait_ms: int = 0,
        until: float = 0.0,
        **members: Any,
    ) -> None:
        self._receive = receive_request(topic, rows_max=rows_max, wait_ms=wait_ms, **members)
        self._ack = AckTemplate(topic)
        self._target = target
        self._until = until
        self._leases: dict[int, int] = {}
        self._asked_ack: dict[int, int] = {}
        self.receipts: list[Receipt] = []
        self.received = 0
        self.acked = 0
        self.empty = 0
        self.last_ack_at: float | None = None

    def request(self, lane: int) -> Sequence[Buffer] | None:
        lease = self._leases.pop(lane, None)
        if lease is not None:
            return (self._ack.request(lease),)
        if self.received >= self._target or (self._until and time.time() >= self._until):
            return None
        return (self._receive,)

    def answer(self, lane: int, status: int, body: memoryview) -> None:
        at_ms = time.time() * 1000.0
        expect_ok(status, body)
        fields = unpack(body)
        if lane in self._asked_ack:
            expected = self._asked_ack.pop(lane)
            if fields.get("done") != expected:
                raise LoadError(f"acked {expected} messages, the answer says {fields}")
            self.acked += expected
            self.last_ack_at = time.perf_counter()
            return
        n = fields["n"]
        if not n:
            self.empty += 1
            return
        fields.pop("bodies", None)
        self.receipts.append(Receipt(at_ms, fields))
        self.received += n
        self._leases[lane] = fields["lease"]
        self._asked_ack[lane] = n

    def columns(self) -> tuple[Int64Array, Int64Array, npt.NDArray[np.float64]]:
        """Refs, due times and receipt times (ms) of everything received, in order of receipt."""
        if not self.receipts:
            nothing = np.empty(0, np.int64)
            return nothing, nothing, np.empty(0)
        refs = np.concatenate([int64_column(r.fields, "refs") for r in self.receipts])
        dues = np.concatenate([int64_column(r.fields, "deliver_at_ms") for r in self.receipts])
        counts = [r.fields["n"] for r in self.receipts]
        return refs, dues, np.repeat([r.at_ms for r in self.receipts], counts)


def ask(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One question outside the measured time; JSON both ways."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        return ask_on(connection, method, path, body)


def ask_on(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The same on a connection that stays open."""
    payload = None if body is None else json.dumps(body)
    connection.request(method, path, payload, {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    if not 200 <= response.status < 300:
        raise LoadError(f"{method} {path}: {response.status} {text[:300]!r}")
    answer: dict[str, Any] = json.loads(text)
    return answer


def counts(port: int, topic: str) -> dict[str, int]:
    """How many messages of a topic are in each state."""
    answer: dict[str, int] = ask(port, "GET", f"/v1/topics/{topic}/stats?delay_buckets=false")[
        "counts"
    ]
    return answer
