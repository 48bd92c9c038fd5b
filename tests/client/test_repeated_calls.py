"""A call that no broker has carried out is repeated until its time limit, whichever call it is.

A port that refuses connections stands for a broker that is away, and a server that begins to listen
there for its return. What may have been carried out is repeated only if it is idempotent.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from delaylog.client import (
    AnswerLost,
    AsyncClient,
    AsyncPlainClient,
    BadRequest,
    Client,
    NotReached,
    NotReachedInTime,
    NotReady,
    PlainClient,
)
from delaylog.client.child_broker import free_port
from tests.client.certificates import make_certificates
from tests.client.either import PLAIN_CLIENTS, ThreadedClient, ThreadedPlainClient
from tests.client.every_call import CALLS, OF_ONE_BROKER
from tests.client.scenes import answer_of_receive, deaf_url, hang_up, not_ready, serving
from tests.waiting import await_that

pytestmark = pytest.mark.usefixtures("no_questions")
AWAY_S = 0.7
NO_CALLS = {"close", "on", "count_messages"}
"""Methods of a plain client without a time limit."""
OF_MESSAGES = {"ack", "nack", "reject", "release", "extend", "begin"}
OTHER_WAYS = {"send", "send_many", "send_soon", "send_columns", "browse", "dead", "subscribe"}
OF_WORKERS = {"consumer", "task", "start", "stop", "run", "connected"}
PARTS = {"broker", "timer", "transaction", "close", "flush", "room"}


def names(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}


def test_the_examples_are_all_calls() -> None:
    plain = names(PlainClient) - NO_CALLS
    assert OF_ONE_BROKER.keys() <= plain <= OF_ONE_BROKER.keys() | CALLS.keys() | {"dead"}
    others = OF_MESSAGES | OTHER_WAYS | OF_WORKERS | PARTS
    found = names(Client) | names(AsyncClient)
    assert found == CALLS.keys() | others, "tests/client/every_call.py has an example of each call"


async def refuse(_: web.Request) -> web.Response:
    return not_ready(400, "bad_request")


@asynccontextmanager
async def returning(
    handle: Callable[[web.Request], Awaitable[web.Response]] = refuse,
) -> AsyncIterator[str]:
    """The address of a broker that is away, and comes back after a while."""
    port = free_port()
    runner = web.ServerRunner(web.Server(handle))  # type: ignore[arg-type]
    await runner.setup()

    async def come() -> None:
        await asyncio.sleep(AWAY_S)
        await web.TCPSite(runner, "127.0.0.1", port).start()

    coming = asyncio.create_task(come())
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await coming
        await runner.cleanup()


@pytest.mark.parametrize("limit", [{}, {"timeout": timedelta(seconds=20)}])
async def test_every_call_waits_for_a_broker_that_is_away(make: Any, limit: dict[str, Any]) -> None:
    async def reaches(call: Any) -> None:
        with pytest.raises(BadRequest):
            await call

    async def listed(found: Any) -> list[Any]:
        return [each async for each in found]

    kind = ThreadedPlainClient if make is ThreadedClient else AsyncPlainClient
    async with returning() as url, make(url) as client, kind(url) as plain:
        calls = [call(client, limit) for call in CALLS.values()]
        calls += [call(plain, limit) for call in OF_ONE_BROKER.values()]
        calls += [listed(client.browse("t")), listed(client.dead("t"))]
        calls += [client.send("t", "x"), client.send_columns("t", ["x"])]
        await asyncio.gather(*map(reaches, calls))


async def test_timers_and_transactions_wait_too() -> None:
    async with returning() as url, AsyncClient(url) as client:
        with pytest.raises(BadRequest):
            await client.timer("k").cancel()
    async with returning() as url, AsyncClient(url) as client:
        with pytest.raises(BadRequest):
            async with client.transaction():
                pass


async def test_a_settlement_waits_for_the_broker(make: Any) -> None:
    """The broker went away after the receive."""

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        receives = request.path.endswith("/receive")
        return answer_of_receive(1) if receives else not_ready(400, "bad_request")

    async with returning(handle) as url, make(url) as client:
        (message,) = await client.receive("t")
        async with returning() as again:
            route = getattr(client, "inner", client)._links[0].transport.route
            route._known = [again]
            with pytest.raises(BadRequest):
                await client.nack(message)


@pytest.mark.parametrize("name", ["cancel", "reschedule", "get", "receive", "stats", "put_topic"])
async def test_a_call_that_is_not_done_within_its_limit_says_so(make: Any, name: str) -> None:
    async with make(deaf_url(), timeout=timedelta(seconds=30)) as client:
        began_s = time.monotonic()
        with pytest.raises(NotReachedInTime, match=r"refused.*for 1 s\): nothing was done"):
            await CALLS[name](client, {"timeout": timedelta(seconds=1)})
        assert 0.8 < time.monotonic() - began_s < 5


@pytest.mark.parametrize("kind", PLAIN_CLIENTS)
async def test_a_client_says_how_long_it_waits_for_a_connection(kind: Any) -> None:
    """As the command line, which repeats for a few seconds of its minute."""
    async with kind(deaf_url(), reconnect=timedelta(seconds=0.3)) as client:
        began_s = time.monotonic()
        with pytest.raises(NotReached, match="refused"):
            await client.stats("t")
        assert 0.3 < time.monotonic() - began_s < 5


async def test_a_call_that_may_have_been_done_is_not_repeated(make: Any) -> None:
    """The connection was made, and broke off."""
    seen: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(request.path)
        return hang_up(request)

    async with serving(handle) as url, make(url) as client:
        for name in ("cancel", "reschedule", "purge", "receive"):
            with pytest.raises(AnswerLost):
                await CALLS[name](client, {})
    assert len(seen) == 4


async def test_a_name_that_does_not_resolve_for_a_moment(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve, tries = socket.getaddrinfo, 0

    def fail_first(host: Any, *given: Any, **options: Any) -> Any:
        nonlocal tries
        if host not in ("broker.invalid", b"broker.invalid"):
            return resolve(host, *given, **options)
        tries += 1
        if tries < 3:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolve("127.0.0.1", *given, **options)

    monkeypatch.setattr(socket, "getaddrinfo", fail_first)
    async with (
        serving(refuse) as url,
        make(url.replace("127.0.0.1", "broker.invalid")) as client,
    ):
        with pytest.raises(BadRequest):
            await client.cancel("t", "a")
    assert tries == 3


async def test_a_handshake_that_is_cut_off(make: Any, tmp_path: Any) -> None:
    """As by a proxy in front of a broker that restarts."""
    given = make_certificates(tmp_path)
    port = free_port()

    async def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    cutting = await asyncio.start_server(cut, "127.0.0.1", port)
    runner = web.ServerRunner(web.Server(refuse))  # type: ignore[arg-type]
    await runner.setup()

    async def come() -> None:
        await asyncio.sleep(AWAY_S)
        cutting.close()
        await cutting.wait_closed()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(given.server, given.server_key)
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()

    coming = asyncio.create_task(come())
    async with make(f"https://127.0.0.1:{port}", ca_file=given.ca) as client:
        with pytest.raises(BadRequest):
            await client.cancel("t", "a")
    await coming
    await runner.cleanup()


async def test_a_node_without_a_leader_that_has_not_begun_the_call(make: Any) -> None:
    """It says so, so every call may be repeated; without these words only an idempotent one."""
    said: dict[str, Any] = {"code": "not_ready", "begun": False}
    seen: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(request.path)
        if len(seen) < 3:
            return web.json_response(said, status=503, headers={"Retry-After": "1"})
        return not_ready(400, "bad_request")

    async with serving(handle) as url, make(url) as client:
        with pytest.raises(BadRequest):
            await client.cancel("t", "a")
        assert len(seen) == 3
        seen.clear()
        said.pop("begun")
        with pytest.raises(NotReady):
            await client.cancel("t", "a")
        assert len(seen) == 1


async def test_all_nodes_of_a_cluster_are_away(make: Any) -> None:
    async with returning() as url, make(f"{deaf_url()},{url}") as client:
        with pytest.raises(BadRequest):
            await client.cancel("t", "a")


async def test_a_receive_and_a_peek_pass_over_a_shard_that_is_away(make: Any) -> None:
    """Where another shard can answer, a call does not wait."""

    async def handle(_: web.Request) -> web.Response:
        return web.json_response({"messages": []})

    async with serving(handle) as url, make(url, deaf_url()) as client:
        began_s = time.monotonic()
        assert await client.peek("t", max=5) == []
        assert time.monotonic() - began_s < 5


async def test_a_worker_says_at_once_that_the_broker_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its consumers repeat their calls themselves, and the schedules of its tasks wait."""
    caplog.set_level(logging.INFO, "delaylog")
    client = AsyncClient(deaf_url())

    async def tidy() -> None:
        pass

    client.task("t").every("0 3 * * *")(tidy)
    began_s = time.monotonic()
    async with asyncio.timeout(8):
        await client.start()
        await asyncio.to_thread(await_that, lambda: "cannot receive" in caplog.text)
    assert "cannot put schedule" in caplog.text
    assert time.monotonic() - began_s < 5
    await client.close()
    assert time.monotonic() - began_s < 8
