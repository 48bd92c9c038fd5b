"""Driver: many keep-alive HTTP/1.1 connections on one epoll, as cheap as plain Python allows.

The load generator shares two cores with the server it measures, so it does no more than it must:
requests arrive as ready bytes and leave by one sendmsg, answers are cut by Content-Length and
handed on as a view. The one rule: one request in flight a connection, so a connection is a client
that waits for its answer. What to ask and what to make of an answer is the script's.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Protocol, Self, TypeAlias

Buffer: TypeAlias = bytes | memoryview

BUFFER_BYTES: Final = 256 * 1024
REQUEST_TIMEOUT_S: Final = 60.0


class LoadError(Exception):
    """The server did not answer as the bench needs it to; the measurement means nothing."""


class Script(Protocol):
    """What the connections ("lanes") ask, and what is done with the answers."""

    def request(self, lane: int) -> Sequence[Buffer] | None:
        """The next request of this lane in pieces, or None when the lane has finished."""

    def answer(self, lane: int, status: int, body: memoryview) -> None:
        """One answer; the view is only valid inside the call."""


class _Lane:
    """One connection: what is left to send, and the answer as far as it has come."""

    __slots__ = ("_buffer", "_filled", "_head_end", "_left", "_total", "_view", "socket", "status")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.status = 0
        self._left: list[Buffer] = []
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._head_end = 0
        self._total = 0

    def begin(self, pieces: Sequence[Buffer]) -> bool:
        """Take a request and send what fits; True when all of it has left."""
        self._left = list(pieces)
        self._filled = self._total = 0
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

    def pull(self) -> memoryview | None:
        """Read on; the body once the answer is whole."""
        while True:
            try:
                count = self.socket.recv_into(self._view[self._filled :])
            except BlockingIOError:
                return None
            if count == 0:
                raise LoadError("the server closed the connection")
            self._filled += count
            if not self._total:
                self._read_head()
            if self._total and self._filled >= self._total:
                return self._view[self._head_end : self._total]

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
            grown = bytearray(self._total + BUFFER_BYTES)
            grown[: self._filled] = self._view[: self._filled]
            self._buffer = grown
            self._view = memoryview(grown)


class Driver:
    """A set of open connections on which scripts run, one after another."""

    def __init__(self, port: int, lanes: int) -> None:
        self._lanes = [_Lane(port) for _ in range(lanes)]
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

    def run(self, script: Script) -> float:
        """Let every lane ask until it has finished; the seconds from first send to last answer."""
        begun = time.perf_counter()
        busy = sum(self._ask(script, index) for index in range(len(self._lanes)))
        lanes, numbers, poll = self._lanes, self._numbers, self._epoll.poll
        answer = script.answer
        while busy:
            events = poll(REQUEST_TIMEOUT_S)
            if not events:
                raise LoadError(f"no answer within {REQUEST_TIMEOUT_S:.0f} s")
            for descriptor, event in events:
                index = numbers[descriptor]
                lane = lanes[index]
                if event & select.EPOLLOUT and lane.push():
                    self._epoll.modify(descriptor, select.EPOLLIN)
                if event & ~select.EPOLLOUT:
                    body = lane.pull()
                    if body is not None:
                        answer(index, lane.status, body)
                        busy -= not self._ask(script, index)
        return time.perf_counter() - begun

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
