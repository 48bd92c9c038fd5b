"""Connections in memory between HTTP clients and the broker's own HTTP face, with latency and loss.

A client has one request at a time on a connection. Bytes arrive in order, later than they were
sent. A connection is cut for both sides at once, or it falls silent: then the client's patience
ends its call, of which it cannot know what came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from random import Random
from typing import Any, NamedTuple, cast

import orjson

from tests.simulation.loop import Process, SimLoop

GAP_S = 1e-6


class Lost(Exception):
    """There is no answer, and the call was carried out or not."""


class Refused(Exception):
    """Nobody listens: the call was not begun."""


class Response(NamedTuple):
    """One answer."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        """Its body."""
        return orjson.loads(self.body) if self.body else None


class _Transport(asyncio.Transport):
    """The broker's end."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._protocol: Any = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 40_000) if name == "peername" else default

    def write(self, data: Any) -> None:
        self._connection.to_client(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(bytes(part) for part in list_of_data))

    def is_closing(self) -> bool:
        return self._connection.is_closed

    def close(self) -> None:
        self._connection.close(Lost("closed by the broker"))

    abort = close

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_reading(self) -> bool:
        return True

    def can_write_eof(self) -> bool:
        return False

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol


class Connection:
    """Both ends."""

    def __init__(self, net: Network, process: Process, protocol: asyncio.Protocol) -> None:
        self._net, self.process, self._protocol = net, process, protocol
        self._arrival_s = 0.0
        self._buffer = b""
        self._waiter: asyncio.Future[Response] | None = None
        self.is_closed = False
        self.is_silent = False
        """Whether all bytes are lost from now on."""
        self._transport = _Transport(self)
        self._transport.set_protocol(protocol)
        self._in_process(protocol.connection_made, self._transport)

    def _in_process(self, call: Callable[..., object], *args: Any) -> None:
        self._later(call, *args, context=self.process.context)

    def _later(self, call: Callable[..., object], *args: Any, context: Context) -> None:
        loop = self._net.loop
        self._arrival_s = max(loop.now + self._net.delay(), self._arrival_s + GAP_S)
        loop.call_at(self._arrival_s, call, *args, context=context)

    # The client's end

    async def ask(self, request: bytes, patience_s: float) -> Response:
        """Send a request, and wait for its answer. Raises Lost."""
        loop = self._net.loop
        self._waiter = waiter = loop.create_future()
        if not self.is_silent:
            self._in_process(self._arrives, request)
        timer = loop.call_later(patience_s, self._give_up)
        try:
            return await waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _give_up(self) -> None:
        self.close(Lost("no answer in time"))

    def _arrives(self, data: bytes) -> None:
        if not self.is_closed:
            self._protocol.data_received(data)

    # The broker's end

    def to_client(self, data: bytes) -> None:
        """What a dead or silent end writes arrives nowhere."""
        if not (self.is_closed or self.is_silent or self.process.is_dead):
            self._later(self._answered, data, context=self._net.context)

    def _answered(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found or self._waiter is None or self._waiter.done():
            return
        lines = head.split(b"\r\n")
        size = 0
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        if len(rest) >= size:
            self._buffer = rest[size:]
            self._waiter.set_result(Response(int(lines[0].split(b" ")[1]), rest[:size]))

    # Either

    def close(self, why: Exception) -> None:
        """End it for both sides."""
        if self.is_closed:
            return
        self.is_closed = True
        self._net.open.pop(self, None)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(why)
        if not self.process.is_dead:
            self._in_process(self._protocol.connection_lost, None)


class Network:
    """All connections of a run."""

    def __init__(self, loop: SimLoop, random: Random, delay_s: float, context: Context) -> None:
        self.loop, self.context = loop, context
        self._random, self._delay_s = random, delay_s
        self.open: dict[Connection, None] = {}
        self.process: Process | None = None
        """The broker that listens, if one does."""

    def delay(self) -> float:
        """The latency of the next bytes."""
        return self._random.random() * self._delay_s

    def connect(self) -> Connection:
        """Raises Refused."""
        process = self.process
        make = self.loop.servers.get(process)
        if process is None or process.is_dead or make is None:
            raise Refused
        connection = Connection(self, process, process.context.copy().run(make))
        self.open[connection] = None
        return connection

    def lose_all(self, why: str, process: Process) -> None:
        """A process has died, and its clients notice."""
        for connection in list(self.open):
            if connection.process is process:
                connection.close(Lost(why))


class Client:
    """One client, which keeps its connection as long as it lasts."""

    def __init__(self, net: Network, random: Random, patience_s: float = 70.0) -> None:
        self._net, self._random = net, random
        self.patience_s = patience_s
        self._connection: Connection | None = None

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """One call, or Lost or Refused."""
        await asyncio.sleep(self._net.delay())
        connection = self._connection
        if connection is None or connection.is_closed or connection.process.is_dead:
            connection = self._connection = self._net.connect()
        raw = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        fields = {"Host": "localhost", "Content-Length": str(len(raw))}
        if body is not None:
            fields["Content-Type"] = "application/json"
        fields |= headers or {}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        request = f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + raw
        return cast("Response", await connection.ask(request, self.patience_s))

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close(Lost("closed by the client"))
