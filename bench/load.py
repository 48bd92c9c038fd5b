"""Driver: many open connections on one epoll, as cheap as plain Python allows.

The load generator shares two cores with the server it measures, so it does no more than it must:
requests arrive as ready bytes and leave by one sendmsg, HTTP answers are cut by Content-Length and
handed on as a view. The one rule: one request in flight a connection, so a connection is a client
that waits for its answer. What to ask and what to make of an answer is the script's; how an answer
is read off the socket is the lane's (`HttpLane` here, `RespLane` in resp_lane.py).
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

Buffer: TypeAlias = bytes | memoryview

# Of a new connection, and what is added when an answer is larger: there may be a thousand lanes.
BUFFER_BYTES: Final = 32 * 1024
MORE_BYTES: Final = 256 * 1024
REQUEST_TIMEOUT_S: Final = 60.0


# What a socket, plain or of TLS, raises when it has to wait.
BLOCKED: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class LoadError(Exception):
    """The server did not answer as the bench needs it to; the measurement means nothing."""


class Script(Protocol):
    """What the connections ("lanes") ask, and what is done with the answers."""

    def request(self, lane: int) -> Sequence[Buffer] | None:
        """The next request of this lane in pieces, or None when the lane has finished."""

    def answer(self, lane: int, status: int, body: Any) -> None:
        """One answer. HTTP: a memoryview that is only valid inside the call; RESP: the parsed
        reply, with status 200."""


class Lane(ABC):
    """One connection: what is left to send, and the answer as far as it has come."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        # Of the answer that `pull` completed.
        self.status = 0
        self.body: Any = None
        self._left: list[Buffer] = []

    def begin(self, pieces: Sequence[Buffer]) -> bool:
        """Take a request and send what fits; True when all of it has left."""
        self._left = list(pieces)
        return self.push()

    def push(self) -> bool:
        """Send on; True when the request has left."""
        left = self._left
        while left:
            try:
                sent = self.socket.sendmsg(left)
            except BlockingIOError:
                return False
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = memoryview(left[0])[sent:]
        return True

    @abstractmethod
    def pull(self) -> bool:
        """Read on; True once the answer is whole."""


class HttpLane(Lane):
    """A keep-alive HTTP/1.1 connection; the body is a view of its buffer."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._head_end = 0
        self._total = 0

    def begin(self, pieces: Sequence[Buffer]) -> bool:
        self._filled = self._total = 0
        return super().begin(pieces)

    def pull(self) -> bool:
        while True:
            try:
                count = self.socket.recv_into(self._view[self._filled :])
            except BLOCKED:
                return False
            if count == 0:
                raise LoadError("the server closed the connection")
            self._filled += count
            if not self._total:
                self._read_head()
            if self._total and self._filled >= self._total:
                self.body = self._view[self._head_end : self._total]
                return True

    def _read_head(self) -> None:
        end = self._buffer.find(b"\r\n\r\n", 0, self._filled)
        if end < 0:
            return
        head = bytes(self._view[:end]).lower()
        start = head.find(b"\r\ncontent-length:")
        if start < 0 or b"\r\nconnection: close" in head:
            raise LoadError(f"an answer the bench cannot read: {head[:200]!r}")
        stop = head.find(b"\r\n", start + 17)
        length = int(head[start + 17 : stop if stop >= 0 else end])
        self.status = int(head[9:12])
        self._head_end = end + 4
        self._total = self._head_end + length
        if self._total > len(self._buffer):
            grown = bytearray(self._total + MORE_BYTES)
            grown[: self._filled] = self._view[: self._filled]
            self._buffer = grown
            self._view = memoryview(grown)


class Driver:
    """A set of open connections on which scripts run, one after another."""

    def __init__(self, port: int, lanes: int, kind: type[Lane] = HttpLane) -> None:
        self._lanes = [kind(port) for _ in range(lanes)]
        self._numbers = {lane.socket.fileno(): index for index, lane in enumerate(self._lanes)}
        self._epoll = select.epoll()
        for lane in self._lanes:
            self._epoll.register(lane.socket, select.EPOLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._epoll.close()
        for lane in self._lanes:
            lane.socket.close()

    def run(self, script: Script, *, enough: Callable[[], bool] | None = None) -> float:
        """Let every lane ask until it has finished; the seconds from first send to last answer.

        `enough` ends it earlier: requests under way are not waited for, and the connections are
        of no use afterwards.
        """
        begun = time.perf_counter()
        busy = sum(self._ask(script, index) for index in range(len(self._lanes)))
        while busy and not (enough and enough()):
            for index in self._answered(script, REQUEST_TIMEOUT_S):
                busy -= not self._ask(script, index)
        return time.perf_counter() - begun

    def run_open(self, script: Script, *, start: float, per_second: int, requests: int) -> float:
        """Open loop: request k (from 0) leaves at `start` + k / `per_second` of `time.time()`, on
        the lane that has been idle longest; returns by how many seconds it fell behind at most."""
        idle = deque(range(len(self._lanes)))
        sent, behind = 0, 0.0
        while sent < requests or len(idle) < len(self._lanes):
            now = time.time()
            behind = max(behind, now - (start + sent / per_second) if sent < requests else 0.0)
            while idle and sent < requests and start + sent / per_second <= now:
                self._ask(script, idle.popleft())
                sent += 1
            if idle and sent < requests:
                # epoll rounds its timeout up to milliseconds; select does not.
                wait_s = max(0.0, start + sent / per_second - time.time())
                select.select((self._epoll,), (), (), wait_s)
                timeout_s = 0.0
            else:
                timeout_s = REQUEST_TIMEOUT_S
            idle.extend(self._answered(script, timeout_s))
        return behind

    def _answered(self, script: Script, timeout_s: float) -> Iterator[int]:
        """Wait for events, hand whole answers to the script and name the lanes that are idle."""
        events = self._epoll.poll(timeout_s)
        if not events and timeout_s == REQUEST_TIMEOUT_S:
            raise LoadError(f"no answer within {REQUEST_TIMEOUT_S:.0f} s")
        for descriptor, event in events:
            index = self._numbers[descriptor]
            lane = self._lanes[index]
            if event & select.EPOLLOUT and lane.push():
                self._epoll.modify(descriptor, select.EPOLLIN)
            if event & ~select.EPOLLOUT and lane.pull():
                script.answer(index, lane.status, lane.body)
                yield index

    def _ask(self, script: Script, index: int) -> bool:
        pieces = script.request(index)
        if pieces is None:
            return False
        lane = self._lanes[index]
        if not lane.begin(pieces):
            self._epoll.modify(lane.socket, select.EPOLLIN | select.EPOLLOUT)
        return True


def expect_ok(status: int, body: memoryview) -> None:
    """Anything but a 2xx ends the measurement."""
    if not 200 <= status < 300:
        raise LoadError(f"answer {status}: {bytes(body[:300])!r}")
