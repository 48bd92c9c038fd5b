"""Receivers of pushes on loopback: they answer by a script, well or badly, and count requests."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TypeAlias

Script: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def answer(status: int, *headers: str, body: bytes = b"") -> Script:
    """A complete answer, again and again on one connection."""
    lines = [f"HTTP/1.1 {status} X", *headers, f"content-length: {len(body)}", "", ""]

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write("\r\n".join(lines).encode() + body)

    return script


def raw(text: bytes, *, close: bool = True) -> Script:
    """These bytes, whatever they are."""

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        if close:
            writer.close()

    return script


def drip(text: bytes, seconds: float) -> Script:
    """One byte at a time, the last one again and again."""

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(1_000_000):
            at = min(number, len(text) - 1)
            writer.write(text[at : at + 1])
            await asyncio.sleep(seconds)

    return script


class Slow:
    """A complete answer after a while."""

    def __init__(self, seconds: float = 0.02) -> None:
        self._seconds = seconds
        self.now = self.most = 0
        """Requests without an answer, and the most there were."""

    async def __call__(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self._seconds)
        self.now -= 1
        writer.write(OK)


async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Nothing at all."""
    await asyncio.sleep(3_600)


class Receiver:
    """A server on loopback; use it as an asynchronous context manager."""

    def __init__(
        self, script: Script, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self.script, self._host, self._tls = script, host, tls
        self.accepted = 0
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        """(request line, headers by lower-case name, body)."""
        self.arrived = asyncio.Event()
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Receiver:
        self._server = await asyncio.start_server(
            self._serve, self._host, self.port, ssl=self._tls, backlog=1_024
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, *rest = head.strip().split("\r\n")
                headers = {
                    name.lower(): text for name, text in (each.split(": ", 1) for each in rest)
                }
                size = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(size[1])) if size else b""
                self.requests.append((line, headers, body))
                self.arrived.set()
                await self.script(reader, writer)
                await writer.drain()
        self._tasks.discard(task)
        writer.close()
