"""The least a Python HTTP server can do: what the broker's figures are held against.

    python bench/bare_server.py application | low-level | protocol | synced FILE

`application` is aiohttp's `web.Application` with one route, `low-level` its `web.Server`,
`protocol` an asyncio.Protocol that only finds the end of each request. All read the body and
answer a fixed small JSON; nothing is parsed, kept or written, except that `synced`, an
`application`, has a thread write each body to FILE and sync it first. Started and killed by the
bench.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, cast

from aiohttp import web

try:
    import uvloop
except ImportError:  # The broker would run without it too; the comparison stays fair.
    uvloop = None  # type: ignore[assignment]

ANSWER: Final = b'{"id":"~0123456789abcdef","deliver_at_ms":1770000000000,"result":"created"}'
REQUEST_BYTES_MAX: Final = 64 << 20
RAW_ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    % (len(ANSWER), ANSWER)
)


async def main(kind: str, *arguments: str) -> None:
    """Serve until killed."""
    starts: dict[str, Callable[..., Awaitable[int]]] = {
        "application": _application,
        "low-level": _low_level,
        "protocol": _protocol,
        "synced": _synced,
    }
    port = await starts[kind](*arguments)
    print(f"ready http=127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()


async def _handle(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(body=ANSWER, content_type="application/json")


async def _handle_low(request: web.BaseRequest) -> web.StreamResponse:
    await request.read()
    return web.Response(body=ANSWER, content_type="application/json")


async def _application(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]] = _handle,
) -> int:
    application = web.Application(client_max_size=REQUEST_BYTES_MAX)
    application.router.add_post("/v1/topics/{topic}/messages", handle)
    return await _listen(web.AppRunner(application, access_log=None))


async def _synced(path: str) -> int:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    thread = ThreadPoolExecutor(1)
    loop = asyncio.get_running_loop()

    def write(body: bytes) -> None:
        os.write(descriptor, body)
        os.fdatasync(descriptor)

    async def handle(request: web.Request) -> web.Response:
        await loop.run_in_executor(thread, write, await request.read())
        return web.Response(body=ANSWER, content_type="application/json")

    return await _application(handle)


async def _low_level() -> int:
    return await _listen(web.ServerRunner(web.Server(_handle_low)))


async def _listen(runner: web.BaseRunner) -> int:
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return int(runner.addresses[0][1])


class _Raw(asyncio.Protocol):
    """Finds where each request ends by its Content-Length and answers it."""

    def __init__(self) -> None:
        self._head = b""
        self._missing = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
        else:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            start = self._head.find(b"Content-Length: ") + 16
            length = int(self._head[start : self._head.find(b"\r", start)])
            self._missing = end + 4 + length - len(self._head)
            self._head = b""
        if self._missing <= 0:
            assert self._missing == 0, "clients of the bench do not pipeline"
            self._transport.write(RAW_ANSWER)


async def _protocol() -> int:
    server = await asyncio.get_running_loop().create_server(_Raw, "127.0.0.1", 0)
    await server.start_serving()
    # Kept alive by the loop; the name only shows the port.
    return int(server.sockets[0].getsockname()[1])


if __name__ == "__main__":
    (uvloop or asyncio).run(main(*sys.argv[1:]))
