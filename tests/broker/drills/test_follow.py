"""A client that follows the leader: what each answer means, and where the next attempt goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from delaylog.broker.drills import load
from delaylog.broker.drills.load import NotDone, Refused, Route, Unclear
from tests.client.scenes import serving

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is waited for however busy the machine is; a drill's 0.3 s would fail here."""
    monkeypatch.setattr(load, "ATTEMPT_S", 30)


@asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[Route, dict[int, Handler], dict[int, str]]]:
    """Two nodes that answer as the test says; a third address at which nobody listens."""
    handlers: dict[int, Handler] = {}

    async def one(request: web.Request) -> web.StreamResponse:
        return await handlers[1](request)

    async def two(request: web.Request) -> web.StreamResponse:
        return await handlers[2](request)

    async with serving(one) as first, serving(two) as second:
        urls = {1: first, 2: second, 3: "http://127.0.0.1:1"}
        async with Route(urls) as route:
            yield route, handlers, urls


async def served(request: web.BaseRequest) -> web.Response:
    return web.Response(body=await request.read())


def answering(status: int, **headers: str) -> Handler:
    async def handle(request: web.BaseRequest) -> web.Response:
        return web.Response(status=status, headers=headers)

    return handle


async def test_it_goes_where_it_is_sent() -> None:
    async with two_nodes() as (route, handlers, urls):
        handlers[1] = answering(307, Location=f"{urls[2]}/v1/x")
        handlers[2] = served
        with pytest.raises(NotDone):
            await route.call("/v1/x", b"b", {})
        answered = await route.call("/v1/x", b"b", {})
        assert (answered.node, answered.body) == (2, b"b")


async def test_a_stranger_is_not_gone_to() -> None:
    async with two_nodes() as (route, handlers, _):
        handlers[1] = answering(307, Location="http://127.0.0.1:2/v1/x")
        handlers[2] = served
        with pytest.raises(NotDone):
            await route.call("/v1/x", b"", {})
        assert (await route.call("/v1/x", b"", {})).node == 2


async def test_what_is_unclear_and_what_is_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """503 may come of a leader that had begun; who says nothing may still be at it; where nobody
    listens nothing is done."""

    async def silent(request: web.BaseRequest) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    async with two_nodes() as (route, handlers, _):
        handlers[1] = answering(503)
        handlers[2] = silent
        for kind, attempt_s in ((Unclear, 30), (Unclear, 0.1), (NotDone, 30)):
            monkeypatch.setattr(load, "ATTEMPT_S", attempt_s)
            with pytest.raises(kind):
                await route.call("/v1/x", b"", {})
        handlers[1] = answering(404)
        with pytest.raises(Refused):
            await route.call("/v1/x", b"", {})
