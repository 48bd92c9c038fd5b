"""What scenes of clients are made of: drains, and servers that play a broker, or nobody."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgpack
import numpy as np
from aiohttp import web

from delaylog.client.child_broker import free_port
from delaylog.client.wire.bulk import BULK_TYPE
from tests.waiting import PATIENCE_S


def deaf_url() -> str:
    """An address at which nobody listens, now and later."""
    return f"http://127.0.0.1:{free_port()}"


async def drained(client: Any, topic: str, count: int, **options: Any) -> list[Any]:
    """So many messages, however many receives that takes."""
    found: list[Any] = []
    until = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < until:
        found += await client.receive(
            topic, max=count - len(found), wait=timedelta(seconds=1), **options
        )
    assert len(found) == count
    return found


async def leased(client: Any, topic: str, least: int, *, most: int = 1_000) -> None:
    """Wait until so many are under lease: a poll that nobody waits for has brought its own."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if least <= (await client.stats(topic)).counts.leased <= most:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not {least} to {most} were leased in time")


def bodies(messages: list[Any]) -> list[bytes]:
    return sorted(message.body for message in messages)


@asynccontextmanager
async def serving(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[str]:
    """A server that answers as the test says; yields its URL."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    scheme = "http" if tls is None else "https"
    try:
        yield "{}://{}:{}".format(scheme, *runner.addresses[0][:2])
    finally:
        await runner.cleanup()


def hang_up(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def bulk(**fields: Any) -> web.Response:
    return web.Response(body=msgpack.packb(fields), content_type=BULK_TYPE)


def answer_of_receive(n: int) -> web.Response:
    """Of `n` messages without a body, under one lease."""
    plain = {"deliver_at_ms": 1, "attempts": 1, "body_size": 0, "bodies": b""}
    refs = np.arange(n, dtype="<i8").tobytes()
    return bulk(n=n, lease=4, lease_until_ms=10**15, now_ms=1, refs=refs, **plain)


def not_ready(status: int = 503, code: str = "not_ready", **headers: str) -> web.Response:
    return web.json_response({"code": code}, status=status, headers=headers)
