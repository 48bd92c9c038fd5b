"""A closed client makes no call, runs no consumer, and says so at once; so does a closed broker."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import delaylog
from delaylog import ManualClock
from delaylog.client import AsyncClient, AsyncPlainClient, Client, PlainClient
from delaylog.client.errors import AnswerLost, ClientClosed, SendFailed
from delaylog.client.workers.consumer import NothingToRun
from tests.client.any_queue import entered, got
from tests.client.either import ThreadedClient
from tests.client.every_call import CALLS, OF_ONE_BROKER
from tests.client.scenes import deaf_url, serving
from tests.programs import forked, status_of
from tests.waiting import until

MAKERS: dict[str, Callable[[Path, str], Any]] = {
    "client": lambda _, url: Client(url),
    "client of shards": lambda _, url: Client(url, url.replace("127.0.0.1", "localhost")),
    "async client": lambda _, url: AsyncClient(url),
    "async client of a cluster": lambda _, url: AsyncClient(
        f"{url},{url.replace('127.0.0.1', 'localhost')}"
    ),
    "embedded": lambda folder, _: delaylog.open(folder, clock=ManualClock()),
    "async embedded": lambda folder, _: delaylog.open_async(folder, clock=ManualClock()),
}


def handler_for(queue: Any) -> Any:
    async def handle_later(message: Any) -> None:
        pass

    return handle_later if hasattr(queue, "__aenter__") else lambda message: None


@pytest.fixture(params=MAKERS)
def making(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Opens one of them, and closes it again."""
    return lambda: entered(MAKERS[request.param](tmp_path / "data", deaf_url()))


async def test_every_call_on_it_is_refused_at_once(making: Any) -> None:
    async with making() as queue:
        queue.consumer("t")(handler_for(queue))
        await got(queue.close())
        began_s = time.monotonic()
        for call in CALLS.values():
            with pytest.raises(ClientClosed, match="closed"):
                await got(call(queue, {}))
        for refused in (
            lambda: queue.send("t", "x"),
            lambda: queue.send_columns("t", ["x"]),
            lambda: queue.timer("k").set(delay=timedelta(milliseconds=1)),
            lambda: queue.timer("k").cancel(),
            queue.run,
            queue.start,
            lambda: queue.consumer("u"),
            lambda: queue.task("u"),
            lambda: _entered(queue),
        ):
            with pytest.raises(ClientClosed, match="closed"):
                await got(refused())
        with pytest.raises((ClientClosed, SendFailed), match="closed"):
            await got(queue.send_many("t", ["x"]))
        assert time.monotonic() - began_s < 5
        assert not queue.connected()
        await got(queue.stop())


def _entered(queue: Any) -> Any:
    return queue.__aenter__() if hasattr(queue, "__aenter__") else queue.__enter__()


@pytest.mark.parametrize("kind", [PlainClient, AsyncPlainClient])
async def test_a_closed_plain_client(kind: Any) -> None:
    plain = kind(deaf_url())
    await got(plain.close())
    for call in OF_ONE_BROKER.values():
        with pytest.raises(ClientClosed):
            await got(call(plain, {}))


async def test_a_call_in_progress_says_that_its_client_was_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        threaded, client = Client(url), AsyncClient(url)
        calls = [
            asyncio.ensure_future(asyncio.to_thread(threaded.receive, "t")),
            asyncio.ensure_future(client.receive("t")),
        ]
        await asyncio.sleep(0.3)
        threaded.close()
        await client.close()
        for call in calls:
            with pytest.raises(AnswerLost, match=r"receive: the client was closed$"):
                await call


async def test_consumers_end_with_a_client_that_is_closed_while_they_run(
    making: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """`run` returns, wherever `close` is called; nothing is tried or logged any more."""
    async with making() as queue:
        queue.consumer("t", grace=timedelta(seconds=1))(handler_for(queue))
        if hasattr(queue, "__aenter__"):
            running = asyncio.create_task(queue.run())
            await until(lambda: queue._shifts)
            await queue.close()
            async with asyncio.timeout(30):
                await running
        else:
            # Signals are for the main thread: what `run` does in it without them.
            queue._prepare()
            queue._start()
            waiting = threading.Thread(target=queue._end.wait, daemon=True)
            waiting.start()
            await asyncio.to_thread(queue.close)
            waiting.join(30)
            assert not waiting.is_alive()
        caplog.clear()
        await asyncio.sleep(0.3)
        assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("kind", [ThreadedClient, AsyncClient])
async def test_a_client_that_is_closed_while_it_starts_runs_nothing(kind: Any) -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        asked.set()
        await over.wait()
        return web.json_response({})

    async with serving(hang) as url:
        client = kind(url)
        own = getattr(client, "inner", client)

        async def handle() -> None:
            pass

        own.task("t").every("0 3 * * *")(handle if own is client else lambda: None)
        starting = asyncio.create_task(client.start())
        await asked.wait()
        await client.close()
        with pytest.raises(ClientClosed):
            await starting
        assert own._shifts == []
        over.set()


@pytest.mark.parametrize("kind", [Client, AsyncClient])
async def test_a_worker_ends_whose_connections_are_closed_by_another_client(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """`broker()` shares them; before, the consumers warned for ever."""
    queue = kind(deaf_url())
    queue.consumer("t")(handler_for(queue))
    await got(queue.start())
    await got(queue.broker().close())
    await until(queue._end.is_set)
    with pytest.raises(ClientClosed):
        await got(queue.stop())
    assert caplog.text.count("the client is closed") == 1
    await got(queue.close())


async def test_a_worker_starts_once(making: Any) -> None:
    async with making() as queue:
        with pytest.raises(NothingToRun):
            await got(queue.start())
        queue.consumer("t")(handler_for(queue))
        if hasattr(queue, "__aenter__"):
            first, second = await asyncio.gather(
                queue.start(), queue.start(), return_exceptions=True
            )
        else:
            first, second = queue.start(), None
        with pytest.raises(RuntimeError, match="running already"):
            await got(queue.start())
        assert first is None
        assert second is None or "running already" in str(second)
        assert len(queue._shifts) == 1
        await got(queue.stop())
        await got(queue.start())


def test_a_client_that_its_parent_has_closed_is_closed_in_a_child(tmp_path: Path) -> None:
    """And one that the child closes goes on in the parent."""
    closed, open_here = Client("http://127.0.0.1:9"), Client("http://127.0.0.1:9")
    broker = delaylog.open(tmp_path / "data", clock=ManualClock())
    for queue in (closed, open_here, broker):
        queue.consumer("t")(lambda message: None)
    closed.close()

    def child() -> None:
        open_here.close()
        for queue in (closed, open_here, broker):
            for call in (queue.start, queue.run, lambda each=queue: each.stats("t")):
                with pytest.raises(ClientClosed):
                    call()

    assert status_of(forked(child)) == 0
    broker.send("t", "x")
    broker.close()
    open_here._check_open()
    open_here.close()
