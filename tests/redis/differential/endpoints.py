"""Where programs of commands are sent: a server on a socket, or our executor in this process.

A session answers in raw bytes, a reply a command. `send` is for commands that surely answer once;
`step` and `later` are for sessions that block or subscribe, where the count of replies is part of
what is compared. Knowing that nothing more will come takes a fence: two round trips on a
connection of its own, after which a single-threaded server has written all it had to write.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Protocol

from tests.redis.differential.resp import Argv, request, split

ANSWER_S = 10.0
"""How long a server may take to answer what it must answer."""
GRACE_S = 1.0
"""How long we wait for what the reference has sent out of turn."""
POLL_S = 0.001
"""In process a wait ends when somebody looks."""


class Silent(Exception):
    """The server closed the connection or did not answer."""


class Session(Protocol):
    """One client."""

    def send(self, commands: Sequence[Argv]) -> list[bytes]:
        """Send all at once, return a raw reply each."""

    def step(self, argv: Argv, least: int) -> list[bytes]:
        """Send one command; all replies that come, waiting for at least so many."""

    def later(self, least: int) -> list[bytes]:
        """What came without being asked for, waiting for at least so many."""

    def close(self) -> None:
        """The client goes away."""


class Endpoint(Protocol):
    """A server and its clients."""

    def session(self) -> Session:
        """A new client."""

    def close(self) -> None:
        """Close what this endpoint has opened."""


class SocketEndpoint:
    """A server that somebody else has started."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._fence = SocketSession(self)

    def connect(self) -> socket.socket:
        """A new connection, without delay."""
        connection = socket.create_connection(self._address, timeout=ANSWER_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def session(self) -> SocketSession:
        return SocketSession(self)

    def fence(self) -> None:
        """After this, all that the server had to write is in our socket buffers."""
        self._fence.send([(b"PING",)])
        self._fence.send([(b"PING",)])

    def close(self) -> None:
        self._fence.close()


class SocketSession:
    """One connection."""

    def __init__(self, endpoint: SocketEndpoint) -> None:
        self._endpoint = endpoint
        self._socket = endpoint.connect()
        self._unread = b""
        self._ready: list[bytes] = []

    def send(self, commands: Sequence[Argv]) -> list[bytes]:
        self._write(commands)
        while len(self._ready) < len(commands):
            if not self._receive(ANSWER_S):
                raise Silent(f"no answer within {ANSWER_S} s", b"".join(self._ready)[-200:])
        replies, self._ready = self._ready[: len(commands)], self._ready[len(commands) :]
        return replies

    def step(self, argv: Argv, least: int) -> list[bytes]:
        self._write([argv])
        return self.later(least)

    def later(self, least: int) -> list[bytes]:
        until = time.monotonic() + GRACE_S
        while len(self._ready) < least and (left := until - time.monotonic()) > 0:
            self._receive(left)
        self._endpoint.fence()
        while self._receive(0):
            pass
        replies, self._ready = self._ready, []
        return replies

    def close(self) -> None:
        self._socket.close()

    def _write(self, commands: Sequence[Argv]) -> None:
        self._socket.settimeout(ANSWER_S)
        self._socket.sendall(b"".join(map(request, commands)))

    def _receive(self, wait_s: float) -> bool:
        self._socket.settimeout(wait_s)
        try:
            data = self._socket.recv(1 << 20)
        except (BlockingIOError, TimeoutError):
            return False
        if not data:
            raise Silent("closed by the server", b"".join(self._ready)[-200:])
        replies, self._unread = split(self._unread + data)
        self._ready += replies
        return True


class InProcessEndpoint:
    """Sessions of the one keyspace of this process.

    A blocked or subscribed session gets what came meanwhile by `send(b"")`, an empty answer too
    whose time has come: time goes on with every `send`.
    """

    def session(self) -> InProcessSession:
        return InProcessSession()

    def close(self) -> None:
        pass


class InProcessSession:
    """One client of it."""

    def __init__(self) -> None:
        # Here, since other users of this module have no hiredis.
        from tests.redis_in_process import connect

        self._client = connect()
        self._unread = b""

    def send(self, commands: Sequence[Argv]) -> list[bytes]:
        replies = self._exchange(b"".join(map(request, commands)))
        self._wait(replies, len(commands), ANSWER_S)
        if len(replies) != len(commands):
            raise Silent(f"{len(replies)} replies to {len(commands)} commands", replies[-1:])
        return replies

    def step(self, argv: Argv, least: int) -> list[bytes]:
        replies = self._exchange(request(argv))
        self._wait(replies, least, GRACE_S)
        return replies

    def later(self, least: int) -> list[bytes]:
        replies = self._exchange(b"")
        self._wait(replies, least, GRACE_S)
        return replies

    def close(self) -> None:
        self._client.close()

    def _wait(self, replies: list[bytes], least: int, seconds: float) -> None:
        """Have at least so many come, if they come in this time."""
        until = time.monotonic() + seconds
        while len(replies) < least and time.monotonic() < until:
            time.sleep(POLL_S)
            replies += self._exchange(b"")

    def _exchange(self, data: bytes) -> list[bytes]:
        replies, self._unread = split(self._unread + self._client.send(data))
        return replies
