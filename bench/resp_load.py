"""A load of large requests over RESP: DL.MSEND of many messages a call.

Runs inside a worker process. redis-benchmark reads replies element by element and builds its
requests anew, which for a thousand messages a call is more work than the broker's; here requests
are made before the clock starts, and of a reply only its head and its length are looked at.
"""

from __future__ import annotations

import select
import socket
import time
from random import Random
from typing import Final

from load import LoadError
from redis_peer import HOST, pack
from sending import HOUR_MS, Stopwatch, Timed

# Different requests, so that due times do not repeat at once.
REQUESTS: Final = 16
BUFFER_BYTES: Final = 512 << 10
ANSWER_TIMEOUT_S: Final = 30.0


def msend_requests(topic: bytes, rows: int, body_size: int) -> list[bytes]:
    """DL.MSEND of `rows` messages, each with a delay of its own over one hour."""
    random = Random(1)
    body = b"x" * body_size
    requests = []
    for _ in range(REQUESTS):
        words = [b"DL.MSEND", topic]
        for _ in range(rows):
            words += [b"%d" % random.randrange(HOUR_MS, 2 * HOUR_MS), body]
        requests.append(pack(words))
    return requests


def timed_msend(
    port: int, server_id: int, *, rows: int, body_size: int, lanes: int, seconds: float
) -> Timed:
    """Send for a while over several connections, one request under way on each."""
    requests = msend_requests(b"bulk", rows, body_size)
    head = b"*%d\r\n" % rows
    # A ref is written with seventeen characters.
    reply_size = len(head) + rows * len(b"$17\r\n~0123456789abcdef\r\n")
    with _Lanes(port, lanes, requests, head, reply_size) as driver:
        driver.run(min(0.3, seconds / 4))
        watch = Stopwatch(server_id)
        return watch.read(driver.run(seconds) * rows)


class _Lanes:
    """Connections that are sent one request after the other."""

    def __init__(
        self, port: int, lanes: int, requests: list[bytes], head: bytes, reply_size: int
    ) -> None:
        self._requests = requests
        self._head = head
        self._reply_size = reply_size
        self._next = 0
        self._sockets: dict[int, socket.socket] = {}
        self._missing: dict[int, int] = {}
        self._poll = select.epoll()
        for _ in range(lanes):
            made = socket.create_connection((HOST, port), timeout=ANSWER_TIMEOUT_S)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            self._sockets[made.fileno()] = made
            self._poll.register(made.fileno(), select.EPOLLIN)
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    def __enter__(self) -> _Lanes:
        return self

    def __exit__(self, *_: object) -> None:
        self._poll.close()
        for each in self._sockets.values():
            each.close()

    def run(self, seconds: float) -> int:
        """Send for so long and wait for the last reply; returns how many came."""
        answered = 0
        until = time.perf_counter() + seconds
        for lane in self._sockets:
            self._send(lane)
        while self._missing:
            events = self._poll.poll(ANSWER_TIMEOUT_S)
            if not events:
                raise LoadError(f"no reply within {ANSWER_TIMEOUT_S:.0f} s")
            for lane, _ in events:
                if self._received(lane):
                    answered += 1
                    if time.perf_counter() < until:
                        self._send(lane)
        return answered

    def _send(self, lane: int) -> None:
        self._sockets[lane].sendall(self._requests[self._next])
        self._next = (self._next + 1) % len(self._requests)
        self._missing[lane] = self._reply_size

    def _received(self, lane: int) -> bool:
        """Take what came; True if the reply is whole."""
        count = self._sockets[lane].recv_into(self._buffer)
        missing = self._missing[lane]
        first = bytes(self._buffer[: min(count, len(self._head))])
        if missing == self._reply_size and not (first and self._head.startswith(first)):
            raise LoadError(f"refused: {bytes(self._buffer[: min(count, 200)])!r}")
        if count > missing or not count:
            raise LoadError("a reply is of another length than it should be")
        if count < missing:
            self._missing[lane] = missing - count
            return False
        del self._missing[lane]
        return True
