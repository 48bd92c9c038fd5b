"""The requests of the section `cost`: clients that wait for each answer, on one asyncio loop.

They run beside the server, as a program with that many connections would. The one rule: what is
sent, and in which order on a connection, stays as it is: the server's figures depend on how many
requests share a turn and a sync.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import procfs
import uvloop
from load import LoadError
from settings import BODY_BYTES

HEAD: Final = (
    b"POST /v1/topics/cost/%b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)
HOUR_MS: Final = 3_600_000
LEAD_MS: Final = (500, 2_000)
# A body of an open loop begins with its due time, so that its consumer knows how late it is.
STAMP_BYTES: Final = 13
PRODUCERS: Final = 20
ROWS_MAX: Final = 100
# Sent before 50 consumers begin: at 25,000/s they last for eleven seconds.
FILL: Final = (300, 1_000)


class Connection(NamedTuple):
    """One client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def call(self, name: bytes, body: bytes) -> bytes:
        """The body of the answer. Raises LoadError if the call failed."""
        self.writer.write(HEAD % (name, len(body)) + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        answer = await self.reader.readexactly(size)
        if head[9:10] != b"2":
            raise LoadError(f"{name!r} was refused: {head + answer!r}")
        return answer

    async def receive(self, rows_max: int, wait_ms: int) -> list[dict[str, Any]]:
        asked = b'{"max":%d,"wait_ms":%d}' % (rows_max, wait_ms)
        found: list[dict[str, Any]] = json.loads(await self.call(b"receive", asked))["messages"]
        return found

    async def ack(self, messages: list[dict[str, Any]]) -> int:
        """The number of messages; for none nothing is sent."""
        if messages:
            receipts = [message["receipt"] for message in messages]
            await self.call(b"ack", json.dumps({"receipts": receipts}).encode())
        return len(messages)


async def _send(client: Connection, ahead_ms: int = HOUR_MS) -> int:
    due_ms = int(time.time() * 1_000) + ahead_ms
    message = b'{"deliver_at_ms":%d,"body":"%b"}' % (due_ms, b"x" * BODY_BYTES)
    await client.call(b"messages", message)
    return 1


async def _take_one(client: Connection) -> int:
    return await client.ack(await client.receive(1, 2_000))


async def _cycle(client: Connection) -> int:
    await _send(client, 0)
    return await _take_one(client)


class Closed(NamedTuple):
    """Clients that each repeat a step, which says how many operations it did."""

    clients: int
    step: Callable[[Connection], Awaitable[int]]
    filled: bool = False
    warm_up_s: float = 1.0


class Open(NamedTuple):
    """Messages a second at their times, some a request, due soon; one consumer takes them."""

    per_second: int
    rows: int
    warm_up_s: float = 3.0


SHAPES: Final[dict[str, Closed | Open]] = {
    "send50": Closed(50, _send),
    "lone-send": Closed(1, _send),
    "one50": Closed(50, _take_one, filled=True),
    "lone-cycle": Closed(1, _cycle),
    "poll1000": Open(1_000, 1),
    "open10k": Open(10_000, 50),
}


class Window(NamedTuple):
    """What the clients and the server did in one window."""

    operations: int
    seconds: float
    user_s: float
    system_s: float
    late_ms: list[float]


def measure(shape: str, port: int, server_id: int, seconds: float) -> Window:
    """A warm-up, then a window of one shape."""
    return uvloop.run(_Load(port).window(SHAPES[shape], server_id, seconds))


class _Load:
    def __init__(self, port: int) -> None:
        self._port = port
        self._done = 0
        self._late_ms: list[float] = []

    async def window(self, shape: Closed | Open, server_id: int, seconds: float) -> Window:
        if isinstance(shape, Open):
            works = [self._produce(shape, k) for k in range(PRODUCERS)] + [self._consume()]
        else:
            if shape.filled:
                await self._fill()
            works = [self._repeat(shape.step) for _ in range(shape.clients)]
        tasks = [asyncio.ensure_future(work) for work in works]
        await asyncio.sleep(shape.warm_up_s)
        self._late_ms.clear()
        done, begun, before_s = self._done, time.perf_counter(), procfs.cpu_times(server_id)
        await asyncio.sleep(seconds)
        after_s = procfs.cpu_times(server_id)
        done, seconds = self._done - done, time.perf_counter() - begun
        for task in tasks:
            if task.done():
                task.result()  # None of them ends but by an error.
        user_s, system_s = (after - before for before, after in zip(before_s, after_s, strict=True))
        return Window(done, seconds, user_s, system_s, self._late_ms)

    async def _connect(self) -> Connection:
        return Connection(*await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24))

    async def _fill(self) -> None:
        client, (calls, rows) = await self._connect(), FILL
        messages = json.dumps([{"body": "x" * BODY_BYTES}] * rows).encode()
        for _ in range(calls):
            await client.call(b"messages", messages)

    async def _repeat(self, step: Callable[[Connection], Awaitable[int]]) -> None:
        client = await self._connect()
        while True:
            done = await step(client)  # Other clients count meanwhile.
            self._done += done

    async def _produce(self, pace: Open, number: int) -> None:
        begun = time.time() + number * pace.rows / pace.per_second
        gap_s, sent = PRODUCERS * pace.rows / pace.per_second, 0
        client, rest = await self._connect(), b"x" * (BODY_BYTES - STAMP_BYTES)
        while True:
            await asyncio.sleep(max(0.0, begun + sent * gap_s - time.time()))
            now_ms = int(time.time() * 1_000)
            dues_ms = [now_ms + random.randint(*LEAD_MS) for _ in range(pace.rows)]
            rows = b",".join(
                b'{"deliver_at_ms":%d,"body":"%d%b"}' % (due_ms, due_ms, rest) for due_ms in dues_ms
            )
            await client.call(b"messages", rows if pace.rows == 1 else b"[%b]" % rows)
            sent += 1

    async def _consume(self) -> None:
        client = await self._connect()
        while True:
            messages = await client.receive(ROWS_MAX, 1_000)
            now_ms = time.time() * 1_000
            self._late_ms += [now_ms - int(each["body"][:STAMP_BYTES]) for each in messages]
            done = await client.ack(messages)
            self._done += done
