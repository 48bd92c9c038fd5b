"""Consumers that a broker refuses: from the start that is an error, later it is waited out."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import msgpack
import pytest

from delaylog.client import ApiError, AsyncClient, Client, Forbidden, NotFound, Unauthorized
from tests.client._sync.scripted_server import Server, Wire, serving
from tests.client.workers.live import Kind, Live, Works
from tests.waiting import await_that, until

LOOK_S = 0.5
"""Longer than the first pauses between tries."""


def run(kind: Kind, url: str, group: str | None, **options: Any) -> None:
    """A program that has a consumer and nothing else, until it ends."""
    if kind == "threads":
        with Client(url, **options) as client:
            client.consumer("t", group=group)(print)
            client.run()
        return

    async def handler(message: Any) -> None:
        print(message)

    async def program() -> None:
        async with AsyncClient(url, **options) as client:
            client.consumer("t", group=group)(handler)
            await client.run()

    asyncio.run(program())


def test_a_group_that_is_not_there_ends_the_program(live: Live, kind: Kind) -> None:
    live.send(["x"])
    with pytest.raises(NotFound, match="topic 't' has no group 'audit'") as caught:
        run(kind, live.url, "audit", namespace=live.namespace)
    assert caught.value.__notes__ == ["the consumer of t/audit was refused"]


@contextmanager
def closed(status: int, code: str, let_through: int = 0) -> Iterator[Server]:
    """Stands before a broker, and lets some receives through, which find nothing."""
    asked = count()

    def script(wire: Wire) -> None:
        while wire.request():
            through = next(asked) < let_through
            body = (
                msgpack.packb({"n": 0, "now_ms": 1})
                if through
                else b'{"code": "%s"}' % code.encode()
            )
            head = b"HTTP/1.1 %d Said\r\nContent-Length: %d\r\n\r\n"
            wire.socket.sendall(head % (200 if through else status, len(body)) + body)

    with serving(script) as server:
        yield server


DENIALS = pytest.mark.parametrize(
    ("status", "code", "raised"),
    [(401, "unauthorized", Unauthorized), (403, "forbidden", Forbidden)],
)


@DENIALS
@pytest.mark.parametrize("let_through", [0, 3], ids=["from the start", "revoked"])
def test_a_token_that_does_not_do_ends_the_program(
    kind: Kind, status: int, code: str, raised: type[ApiError], let_through: int
) -> None:
    with closed(status, code, let_through) as server, pytest.raises(raised) as caught:
        run(kind, server.url, None)
    assert len(server.requests) == let_through + 1
    assert caught.value.__notes__ == ["the consumer of t was refused"]


@DENIALS
def test_a_started_worker_asks_no_more_once_its_token_is_revoked(
    kind: Kind, status: int, code: str, raised: type[ApiError], caplog: pytest.LogCaptureFixture
) -> None:
    """A program that handles signals itself sees the log, and gets the error when it stops."""

    async def handler(message: Any) -> None:
        raise AssertionError("nothing is handed out")

    async def tasks(url: str) -> None:
        async with AsyncClient(url) as client:
            client.consumer("t")(handler)
            await client.start()
            await until(told)
            await asyncio.sleep(LOOK_S)

    def program(url: str) -> None:
        if kind == "tasks":
            asyncio.run(tasks(url))
            return
        with Client(url) as client:
            client.consumer("t")(print)
            client.start()
            await_that(told)
            threading.Event().wait(LOOK_S)

    def told() -> bool:
        return any(each.levelno == logging.ERROR for each in list(caplog.records))

    with closed(status, code, 2) as server, pytest.raises(raised):
        program(server.url)
    assert len(server.requests) == 3
    (line,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert f"t: cannot receive from {server.url}: {status} {code}" in line.message


def test_a_program_that_watches_signals_itself_hears_of_it_when_it_stops(
    live: Live, works: Works, caplog: pytest.LogCaptureFixture
) -> None:
    @works.consumer(group="audit")
    async def handle(message: Any) -> None:
        raise AssertionError("nothing is handed out")

    works.start()
    # A stop before the first answer has nothing to tell.
    await_that(lambda: "t/audit: cannot receive from" in caplog.text)
    with pytest.raises(NotFound):
        works.stop()


def test_a_group_that_is_made_after_the_start_is_consumed(live: Live, works: Works) -> None:
    """As long as nobody stops it, it asks again."""
    handled: list[str] = []

    @works.consumer(group="audit")
    async def handle(message: Any) -> None:
        handled.append(message.text)

    with works:
        live.client.put_group("t", "audit")
        live.send(["x"])
        await_that(lambda: handled == ["x"])


def test_a_group_that_goes_while_it_is_consumed_is_waited_for(
    live: Live, works: Works, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so, and it goes on when the group is there again."""
    caplog.set_level(logging.INFO)
    handled: list[str] = []
    live.client.put_group("t", "audit")

    @works.consumer(group="audit")
    async def handle(message: Any) -> None:
        handled.append(message.text)

    def told(text: str, level: int) -> bool:
        lines = list(caplog.records)
        return any(text in line.message and line.levelno == level for line in lines)

    with works:
        live.send(["before"])
        await_that(lambda: handled == ["before"])
        live.client.drop_group("t", "audit")
        await_that(lambda: told("t/audit: cannot receive from", logging.ERROR))
        live.client.put_group("t", "audit")
        await_that(lambda: told(" again, after ", logging.INFO))
        live.send(["after"])
        await_that(lambda: handled == ["before", "after"])
