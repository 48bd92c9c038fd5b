"""The connections to one broker or cluster for programs with threads, on plain sockets.

The transport sends each request once and reports a failure as NotReached or AnswerLost. Any number
of threads may use it. A forked child process starts without connections: the inherited ones belong
to its parent. A thread whose node is silent looks for another leader itself, by `leader_watch`,
between two waits.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from delaylog.client._sync.carrier import Carrying
from delaylog.client.errors import (
    AnswerLate,
    AnswerLost,
    NotReached,
    NotReachedInTime,
)
from delaylog.client.wire.exchange import (
    QUIET_S,
    SHORTEST_S,
    Answer,
    Ask,
    LeftNode,
    Outcome,
    Silence,
    because,
)
from delaylog.client.wire.http_answer import (
    AnswerReader,
    MalformedAnswer,
    NoAnswer,
    unanswered,
    unreached,
)

READ_BYTES: Final = 64 << 10
READ_BYTES_MAX: Final = 1 << 20
JOINED_BYTES_MAX: Final = 128 << 10
"""Up to this size, head and body are sent with one call; beyond it the copy costs more."""
_NOT_IN_HEADERS: Final = ("\r", "\n", "\0")


class Transport(Carrying):
    """Carries out calls; opens a connection when no idle one is left."""

    def _begin(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._in_use: set[_Connection] = set()

    def open(self) -> None:
        """Check that it is not closed. Connections are opened when they are needed."""
        self.check_open()

    def close(self) -> None:
        """Close the connections. Calls in progress, in any thread, raise AnswerLost."""
        self._closed = True
        if self._process_id != os.getpid():
            return
        for connection in list(self._in_use):
            connection.abort()
        for node in list(self._nodes.values()):
            node.drop()

    def _look(self, silence: Silence) -> None:
        """Raise LeftNode if another node leads than the silent one."""
        if self._carried(self._leader_watch.look(silence)):
            raise LeftNode(f"{self.route.node} leads")

    def _once(self, ask: Ask) -> Outcome:
        """Make one exchange with one node."""
        self.check_open()
        head = self._node(ask.node)
        if head is None:
            return NotReached(f"{ask.name}: not an http address")
        wait = _Wait(ask, self._look)
        try:
            connection = head.take() or head.connect(wait)
        except LeftNode as left:
            return because(NotReached(f"{ask.name}: no connection, and {left}"), left)
        except TimeoutError as error:
            return because(NotReachedInTime(f"{ask.name}: no connection in time"), error)
        except OSError as error:
            return because(NotReached(f"{ask.name}: {unreached(error)}"), error)
        answered = False
        self._in_use.add(connection)
        try:
            if self._closed:
                raise ConnectionAbortedError("the client is closed")
            reader = connection.exchange(head.request(ask), ask.body, wait)
            answered = True
        except LeftNode as left:
            return because(AnswerLost(f"{ask.name}: no answer, and {left}"), left)
        except NoAnswer as error:
            why = unanswered(ask.node, closed=self._closed)
            return because(AnswerLost(f"{ask.name}: {why}"), error)
        except TimeoutError as error:
            return because(AnswerLate(f"{ask.name}: no answer in time"), error)
        except (OSError, MalformedAnswer) as error:
            return because(AnswerLost(f"{ask.name}: {error or type(error).__name__}"), error)
        finally:
            self._in_use.discard(connection)
            if answered and reader.reusable and not self._closed:
                head.give(connection, self._connections_max)
            else:
                connection.close()
        return Answer(
            reader.status,
            reader.body,
            reader.header(b"retry-after"),
            reader.header(b"location"),
            reader.header(b"x-request-id"),
        )

    def _node(self, base: str) -> _Node | None:
        process_id = os.getpid()
        if process_id != self._process_id:
            # Forget the connections without shutting them down: the parent still uses them.
            self._begin()
            self._process_id = process_id
        node = self._nodes.get(base)
        if node is None:
            node = _Node.of(base, self.route.credentials.tls)
            if node is not None:
                node = self._nodes.setdefault(base, node)
        return node


class _Node:
    """One address: the start of its requests, and its idle connections, newest first."""

    def __init__(
        self,
        host: str,
        port: int,
        prefix: str,
        authority: str,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._host = host
        self._port = port
        self._prefix = prefix
        self._authority = authority
        self._tls = tls
        self._free: deque[_Connection] = deque()

    @classmethod
    def of(cls, base: str, tls: ssl.SSLContext | None) -> _Node | None:
        """The node at an address; None if this is not an HTTP address."""
        try:
            parts = urlsplit(base)
            port = parts.port
        except ValueError:
            return None
        host = parts.hostname
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            return None
        if not base.isascii() or not base.isprintable() or " " in base:
            return None
        secure = parts.scheme == "https"
        context = (tls or ssl.create_default_context()) if secure else None
        return cls(host, port or (443 if secure else 80), parts.path, parts.netloc, context)

    def request(self, ask: Ask) -> bytes:
        """The head of a request."""
        lines = f"Host: {self._authority}\r\n"
        for name, value in ask.headers.items():
            if any(bad in value or bad in name for bad in _NOT_IN_HEADERS):
                raise ValueError(f"the header {name!r} holds a line break")
            lines += f"{name}: {value}\r\n"
        body = ask.body
        if body is not None:
            lines += f"Content-Length: {len(body)}\r\n"
        head = f"{ask.method} {self._prefix}{ask.path} HTTP/1.1\r\n{lines}\r\n"
        return head.encode()

    def take(self) -> _Connection | None:
        """An idle connection on which the peer has sent nothing; None if there is none."""
        while True:
            try:
                connection = self._free.pop()
            except IndexError:
                return None
            if connection.quiet():
                return connection
            connection.close()

    def connect(self, wait: _Wait) -> _Connection:
        """Open a connection. Raises OSError, of which ssl.SSLError is a subclass, or LeftNode."""
        tried_s = 0.0
        while True:
            # A try that waited for longer than that begins anew: nothing has been sent.
            try_s = wait.at_most(max(QUIET_S, tried_s))
            try:
                return self._connect(try_s)
            except TimeoutError:
                wait.timed_out()
                tried_s += try_s

    def _connect(self, timeout_s: float) -> _Connection:
        raw = socket.create_connection((self._host, self._port), timeout_s)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return _Connection(raw, timeout_s)
            return _Connection(self._tls.wrap_socket(raw, server_hostname=self._host), timeout_s)
        except BaseException:
            raw.close()
            raise

    def give(self, connection: _Connection, kept_max: int) -> None:
        """Keep a connection for the next call."""
        self._free.append(connection)
        if len(self._free) > kept_max:
            try:
                self._free.popleft().close()
            except IndexError:
                # Other threads have taken all connections.
                return

    def drop(self) -> None:
        """Close the idle connections."""
        while True:
            try:
                self._free.pop().close()
            except IndexError:
                return


class _Connection:
    """A socket that carries one request after another."""

    __slots__ = ("_poll", "_socket", "_timeout_s")

    def __init__(self, connected: socket.socket, timeout_s: float) -> None:
        self._socket = connected
        self._timeout_s = timeout_s
        self._poll: select.poll | None = None
        if hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(connected, select.POLLIN)

    def quiet(self) -> bool:
        """Whether the peer has sent nothing, such as an EOF, since the last answer."""
        if self._poll is not None:
            return not self._poll.poll(0)
        return not select.select([self._socket], [], [], 0)[0]

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def abort(self) -> None:
        """Shut the socket down; the thread that uses it fails immediately."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def exchange(self, head: bytes, body: bytes | None, wait: _Wait) -> AnswerReader:
        """Send a request and read its answer. Raises OSError (TimeoutError), MalformedAnswer or
        LeftNode.
        """
        try:
            if body is None:
                self._send(head, wait)
            elif len(body) <= JOINED_BYTES_MAX:
                self._send(head + body, wait)
            else:
                self._send(head, wait)
                self._send(body, wait)
        except TimeoutError:
            raise
        except OSError as error:
            return self._early_answer(error, wait)
        return self._read(wait)

    def _send(self, data: bytes, wait: _Wait) -> None:
        left: bytes | memoryview = data
        while True:
            self._limit(wait)
            try:
                sent = self._socket.send(left)
            except TimeoutError:
                wait.timed_out()
                continue
            if sent == len(left):
                return
            left = memoryview(left)[sent:]

    def _read(self, wait: _Wait) -> AnswerReader:
        reader = AnswerReader()
        feed = reader.feed
        data = self._receive(READ_BYTES, wait)
        while data:
            if feed(data):
                return reader
            wait.heard()
            self._limit(wait)
            data = self._receive(max(READ_BYTES, min(reader.wanted, READ_BYTES_MAX)), wait)
        reader.end()
        return reader

    def _receive(self, size: int, wait: _Wait) -> bytes:
        while True:
            try:
                return self._socket.recv(size)
            except TimeoutError:
                wait.timed_out()
                self._limit(wait)

    def _early_answer(self, error: OSError, wait: _Wait) -> AnswerReader:
        """Read the answer of a peer that refused a request before it had read all of it."""
        try:
            reader = self._read(wait)
        except (OSError, MalformedAnswer):
            raise error from None
        reader.reusable = False
        return reader

    def _limit(self, wait: _Wait) -> None:
        """Set the socket timeout to the time until the call ends, or looks for another leader."""
        wait_s = wait.seconds()
        # Setting a timeout costs a system call, so one that is almost right is kept.
        if not 0 <= self._timeout_s - wait_s < 0.001 * self._timeout_s:
            self._timeout_s = wait_s
            self._socket.settimeout(wait_s)


class _Wait:
    """How long an exchange may wait: until its limit, with looks for another leader between."""

    __slots__ = ("_look", "_silence", "_until_s")

    def __init__(self, ask: Ask, look: Callable[[Silence], None]) -> None:
        """`look` raises LeftNode if another node leads than a silent one."""
        now_s = time.monotonic()
        self._until_s = now_s + ask.limit_s
        self._silence = None if ask.again_s is None else Silence(ask.node, ask.again_s, now_s)
        self._look = look

    def seconds(self) -> float:
        """How long the socket may wait now. TimeoutError if the limit has passed."""
        now_s = time.monotonic()
        left_s = self._until_s - now_s
        if left_s <= 0:
            raise TimeoutError("the call took too long")
        if self._silence is None:
            return left_s
        return min(left_s, max(self._silence.look_at_s - now_s, SHORTEST_S))

    def at_most(self, longest_s: float) -> float:
        """How long a try to connect may take; the limit counts alone if there are no looks."""
        left_s = max(self._until_s - time.monotonic(), SHORTEST_S)
        return left_s if self._silence is None else min(left_s, longest_s)

    def heard(self) -> None:
        """Note that bytes have arrived."""
        if self._silence is not None:
            self._silence.heard(time.monotonic())

    def timed_out(self) -> None:
        """Look for another leader: LeftNode if there is one. TimeoutError at the limit."""
        if self._silence is None or time.monotonic() >= self._until_s:
            raise TimeoutError("the call took too long")
        self._look(self._silence)
