"""A client of streams for tests: frames and server-sent events as they are, on a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgpack
import orjson

WAIT_S = 60.0
ACCEPT = {"Accept": "text/event-stream"}


def path_of(topic: str, group: str = "default", **query: Any) -> str:
    """The path of a stream."""
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    return f"/v1/topics/{topic}/groups/{group}/stream?{asked}"


class Stream:
    """One WebSocket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def frame(self) -> dict[str, Any]:
        """The next frame; fails if the broker closes."""
        message = await asyncio.wait_for(self.socket.receive(), WAIT_S)
        assert message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY), message
        is_text = message.type is aiohttp.WSMsgType.TEXT
        found: dict[str, Any] = (orjson.loads if is_text else msgpack.unpackb)(message.data)
        return found

    async def until(self, name: str) -> dict[str, Any]:
        """The next frame with this member."""
        while name not in (found := await self.frame()):
            pass
        return found

    async def messages(self, count: int) -> list[dict[str, Any]]:
        """The next messages."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            found += (await self.until("messages"))["messages"]
        return found

    async def send(self, **frame: Any) -> None:
        """Send a frame as JSON."""
        await self.socket.send_str(orjson.dumps(frame).decode())

    async def ack(self, messages: list[dict[str, Any]]) -> None:
        await self.send(ack={"receipts": [each["receipt"] for each in messages]})

    def break_off(self) -> None:
        """Reset the connection, as a process that is killed."""
        connection = self.socket._conn
        assert connection is not None
        assert connection.transport is not None
        connection.transport.abort()

    async def closing(self) -> tuple[int | None, str]:
        """Close code and reason, after any frames."""
        while True:
            message = await asyncio.wait_for(self.socket.receive(), WAIT_S)
            if message.type is aiohttp.WSMsgType.CLOSE:
                return message.data, message.extra
            if message.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR):
                return self.socket.close_code, ""


@asynccontextmanager
async def streaming(
    broker: Any, topic: str, group: str = "default", *, token: str | None = None, **query: Any
) -> AsyncIterator[Stream]:
    """An open stream, after its first frame."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(broker.url, headers=headers) as session,
        session.ws_connect(path_of(topic, group, **query), max_msg_size=0) as socket,
    ):
        stream = Stream(socket)
        assert "open" in await stream.frame()
        yield stream


class Events:
    """The server-sent events of one answer."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> tuple[str, Any]:
        """Name and data of the next event; comments are skipped."""
        name, data = "message", None
        while True:
            line = await self.line()
            assert line, "the stream has ended"
            if line.startswith(b"event: "):
                name = line[7:-1].decode()
            elif line.startswith(b"data: "):
                data = json.loads(line[6:])
            elif line == b"\n" and data is not None:
                return name, data

    async def line(self) -> bytes:
        return await asyncio.wait_for(self.response.content.readline(), WAIT_S)

    async def told(self) -> Any:
        """The data of the next event, which may be empty; ("end", code) of the last one."""
        name, data = await self.next()
        return ("end", data["code"]) if name == "end" else data

    async def news(self) -> Any:
        """The same of the next event that is not empty."""
        while not (found := await self.told()):
            pass
        return found


@asynccontextmanager
async def listening(url: str, path: str, **headers: str) -> AsyncIterator[Events]:
    """An open stream of events."""
    async with (
        aiohttp.ClientSession(url) as session,
        session.get(path, headers=ACCEPT | headers) as response,
    ):
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-store"
        yield Events(response)
