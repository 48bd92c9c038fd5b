"""Carrying a call to the leader: what of it arrives there, what comes back, and when it is refused.

A scripted server stands for the leader, and a face without an engine for the node that carries.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from multidict import CIMultiDict

from delaylog.broker.camellia.leader_proxy import CARRIED, LeaderProxy
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.tls.contexts import ClientTls
from tests.certificates import HOSTS, Authority, write_private
from tests.client.scenes import serving

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def carry(
    handler: Handler,
    method: str = "POST",
    path: str = "/camellia/x?a=%C3%A9&b=1",
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    times: int = 1,
) -> web.Response:
    """What the carrying node answers."""

    async def run() -> web.Response:
        proxy = LeaderProxy()
        async with serving(handler) as url:
            try:
                for _ in range(times):
                    answer = await proxy.carry(call(method, path, body, headers), url)
                return answer
            finally:
                await proxy.stop()

    return asyncio.run(run())


def call(
    method: str = "GET", path: str = "/", body: bytes = b"", headers: dict[str, str] | None = None
) -> Any:
    """A call that arrived at the carrying node."""

    async def wire() -> bytes:
        return body

    request = SimpleNamespace(method=method, raw_path=path, headers=CIMultiDict(headers or {}))
    return SimpleNamespace(request=request, body=wire, request_id="r1")


def test_what_arrives_and_what_comes_back() -> None:
    """Path, query, body and headers, but not those of the connection, either way."""
    seen: list[Any] = []

    async def leader(request: web.Request) -> web.Response:
        seen.append((request.raw_path, await request.read(), request.headers))
        headers = {"X-Kept": "1", "Connection": "close", "Content-Type": "text/x"}
        return web.Response(status=201, body=b"caf\xe9", headers=headers)

    asked = {
        "Host": "follower:1",
        "Content-Type": "application/x-www-form-urlencoded",
        "Content-Length": "99",
        "Content-Encoding": "gzip",
        "Authorization": "Bearer t",
        "Connection": "keep-alive, X-Hop",
        "X-Hop": "gone",
        "Transfer-Encoding": "chunked",
        "TE": "trailers",
        "Expect": "100-continue",
        "X-Own": "1",
    }
    answer = carry(leader, body=b"msg=1", headers=asked)
    ((path, body, got),) = seen
    assert (path, body) == ("/camellia/x?a=%C3%A9&b=1", b"msg=1")
    assert got["Content-Length"] == "5"
    assert got["Host"].startswith("127.0.0.1:")
    kept = ("Content-Type", "Authorization", "X-Own")
    assert {name: got[name] for name in kept} == {name: asked[name] for name in kept}
    assert got[CARRIED] == "1"
    assert got["X-Request-Id"] == "r1", "both nodes log the request by one id"
    for name in ("X-Hop", "TE", "Expect", "Content-Encoding", "Transfer-Encoding", "User-Agent"):
        assert name not in got
    assert (answer.status, answer.body) == (201, b"caf\xe9")
    assert (answer.headers["X-Kept"], answer.kind) == ("1", "text/x")
    assert "Connection" not in answer.headers
    assert "Server" not in answer.headers


def test_connections_are_kept() -> None:
    peers = set()

    async def leader(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(text="ok")

    carry(leader, "GET", times=5)
    assert len(peers) == 1


def test_a_carried_call_is_refused() -> None:
    async def leader(_request: web.Request) -> web.Response:
        raise AssertionError("it is not carried again")

    with pytest.raises(NotLeadingError, match="each other"):
        carry(leader, headers={CARRIED.lower(): "1"})


def test_a_leader_that_breaks_off() -> None:
    """It may have done it, and it is asked once."""
    asked = 0

    async def leader(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    with pytest.raises(NotLeadingError, match="may have been carried out"):
        carry(leader, "GET")
    assert asked == 1


def test_a_leader_that_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def run() -> None:
        proxy = LeaderProxy()
        try:
            await proxy.carry(call(), f"http://127.0.0.1:{port}")
        finally:
            await proxy.stop()

    with pytest.raises(NotLeadingError, match="cannot be reached"):
        asyncio.run(run())


def test_a_leader_over_tls(tmp_path: Path) -> None:
    """Its certificate must be of a trusted CA, the present one of the file, and name its host."""
    mine, other = Authority("mine"), Authority("other")
    path = tmp_path / "ca.pem"
    path.write_bytes(other.pem)
    tls = ClientTls(str(path))
    assert tls.files == (str(path),)

    async def leader(request: web.Request) -> web.Response:
        return web.Response(text="from the leader")

    async def run() -> None:
        proxies = [LeaderProxy(tls), LeaderProxy()]
        named = served_over_tls(leader, mine.issue("leader", hosts=HOSTS), tmp_path)
        unnamed = served_over_tls(leader, mine.issue("leader", hosts=["x.example"]), tmp_path)
        async with named as url, unnamed as wrong_url:
            for proxy in proxies:
                with pytest.raises(NotLeadingError, match=r"does not trust .*: see tls-ca"):
                    await proxy.carry(call(), url)
            path.write_bytes(mine.pem)
            await tls.read()()
            assert (await proxies[0].carry(call(), url)).body == b"from the leader"
            with pytest.raises(NotLeadingError, match=r"does not trust .*mismatch"):
                await proxies[0].carry(call(), wrong_url)
            path.write_bytes(other.pem)
            await tls.read()()
            with pytest.raises(NotLeadingError, match="does not trust"):
                await proxies[0].carry(call(), url)
        for proxy in proxies:
            await proxy.stop()

    asyncio.run(run())
    path.write_bytes(b"")
    with pytest.raises(ConfigError, match=r"tls-ca .* must contain certificates in PEM format"):
        tls.read()


def served_over_tls(handle: Handler, pair: bytes, folder: Path) -> Any:
    """A leader with this certificate and key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_private(folder / "pair.pem", pair))
    return serving(handle, context)
