"""What clients of a broker that checks tokens do: rotation, refusals, redirects, TLS.

Servers made of aiohttp stand for brokers and keep the `Authorization` of every request.
"""

from __future__ import annotations

import asyncio
import ssl
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from delaylog.client import (
    AnswerLost,
    ApiError,
    ClientError,
    Forbidden,
    NotReached,
    SendFailed,
    Unauthorized,
)
from delaylog.client.wire import exchange
from tests.client import scenes
from tests.client.certificates import Certificates
from tests.client.either import ThreadedClient

CLUSTER = "/v1/cluster"
SENT = {"id": "~1", "deliver_at_ms": 7, "result": "created"}
NEEDS_SEND = "the right send on topic t is missing"


@asynccontextmanager
async def serving(*brokers: Broker, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """Serve the brokers at ports of their own."""
    async with AsyncExitStack() as stack:
        for broker in brokers:
            broker.url = await stack.enter_async_context(scenes.serving(broker.handle, tls))
        yield


class Broker:
    """Lets one token through; redirects everything if `leader` is set."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token
        self.url = ""
        self.leader: str | None = None
        self.members: list[str] = []
        self.refusal: tuple[int, dict[str, Any]] | None = None
        self.seen: list[tuple[str, str | None]] = []
        self.on_call: Callable[[], object] = lambda: None

    async def handle(self, request: web.Request) -> web.Response:
        said = request.headers.get("Authorization")
        self.seen.append((request.path, said))
        self.on_call()
        if self.refusal is not None:
            return web.json_response(self.refusal[1], status=self.refusal[0])
        if request.path == CLUSTER:
            return web.json_response({"members": [{"http": url} for url in self.members]})
        if self.leader is not None:
            location = {"Location": self.leader + request.path}
            return web.json_response({"code": "moved"}, status=307, headers=location)
        if self.token is not None and said != f"Bearer {self.token}":
            problem = {"code": "unauthorized", "status": 401, "detail": f"unknown token, {said}"}
            return web.json_response(problem, status=401)
        return web.json_response(SENT)

    @property
    def tokens(self) -> set[str | None]:
        return {said for _, said in self.seen}


def secret_file(folder: Path, token: str) -> Path:
    """A file with the token, put there as a rotation does it."""
    new, path = folder / "new", folder / "token"
    new.write_text(token)
    new.chmod(0o600)
    return new.rename(path)


def server_tls(certificates: Certificates, *, asks: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server, certificates.server_key)
    if asks:
        context.load_verify_locations(certificates.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_a_rotated_file_is_read_again_and_the_call_repeated(
    plain: Any, tmp_path: Path
) -> None:
    """The plain send too: a refused token means that nothing was done."""
    broker = Broker("old")
    path = secret_file(tmp_path, "old")
    async with serving(broker), plain(broker.url, token_file=path) as client:
        assert (await client.send("t", "x")).id == "~1"
        broker.token = "new"
        secret_file(tmp_path, "new")
        for _ in range(2):
            assert (await client.send("t", "x")).id == "~1"
    assert [said for _, said in broker.seen] == [
        "Bearer old",
        "Bearer old",
        "Bearer new",
        "Bearer new",
    ]


async def test_a_call_is_repeated_for_a_new_token_once(plain: Any, tmp_path: Path) -> None:
    """A file that changes again and again does not make it a loop."""
    broker = Broker("never")
    path = secret_file(tmp_path, "token-0")
    async with serving(broker), plain(broker.url, token_file=path) as client:
        with pytest.raises(Unauthorized):
            await client.send("t", "x")
        assert len(broker.seen) == 1, "the file is as it was"

        broker.on_call = lambda: secret_file(tmp_path, f"token-{len(broker.seen)}")
        with pytest.raises(Unauthorized):
            await client.send("t", "x")
    assert [said for _, said in broker.seen] == [f"Bearer token-{n}" for n in (0, 0, 2)]


async def test_an_echoed_token_is_in_no_error(plain: Any, make: Any) -> None:
    for kind in (plain, make):
        broker = Broker("other")
        async with serving(broker), kind(broker.url, token="s3cret") as client:
            with pytest.raises(
                Unauthorized, match=r"401 unauthorized: unknown token, Bearer \*"
            ) as e:
                await client.send("t", "x")
        assert "s3cret" not in f"{e.value} {e.value!r} {e.value.problem} {e.value.detail}"


async def test_a_missing_right_is_named_and_nothing_is_repeated(make: Any, topic: str) -> None:
    """Neither by sends that wait, nor by many at once, nor by columns, nor by a flush."""
    broker = Broker()
    problem = {"code": "forbidden", "status": 403, "detail": NEEDS_SEND}
    broker.refusal = (403, problem)
    async with serving(broker):
        client = make(
            broker.url,
            token="s3cret",
            linger=timedelta(milliseconds=1),
            timeout=timedelta(seconds=30),
        )
        for call in (
            lambda: client.send(topic, "x"),
            lambda: client.send_columns(topic, ["x"]),
            lambda: client.receive(topic),
            lambda: client.stats(topic),
        ):
            broker.seen.clear()
            with pytest.raises(Forbidden, match=NEEDS_SEND):
                await call()
            assert len(broker.seen) == 1
        with pytest.raises(SendFailed, match=NEEDS_SEND) as caught:
            await client.send_many(topic, ["x", "y"])
        assert {type(each) for each in caught.value.outcomes} == {Forbidden}
        if make is ThreadedClient:
            await client.send_soon(topic, "x")
        else:
            client.send_soon(topic, "x")
        broker.seen.clear()
        with pytest.raises(SendFailed, match=NEEDS_SEND):
            await client.close()
        assert len(broker.seen) == 1


async def test_a_stranger_gets_no_request_at_all(plain: Any) -> None:
    """At another port, or by another name of this machine; no client follows."""
    hostile, stranger = Broker(), Broker()
    async with serving(hostile, stranger):
        for leader in (stranger.url, stranger.url.replace("127.0.0.1", "localhost")):
            hostile.leader = leader
            async with plain(hostile.url, token="s3cret") as client:
                with pytest.raises(ApiError, match="not followed: it is no known member") as caught:
                    await client.send("t", "x")
            assert caught.value.status == 307
            assert str(caught.value.location).startswith(leader)
    assert stranger.seen == []
    assert hostile.tokens == {"Bearer s3cret"}


@pytest.mark.parametrize("insecure", [False, True])
@pytest.mark.parametrize("known", [False, True])
async def test_a_redirect_out_of_tls_is_not_followed(
    plain: Any,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    insecure: bool,
    known: bool,
) -> None:
    """Not even to a member that the caller named, on this machine."""
    # Of a node that is slow, the client asks the other one who leads.
    monkeypatch.setattr(exchange, "QUIET_S", 600.0)
    hostile, bare = Broker(), Broker()
    async with serving(bare), serving(hostile, tls=server_tls(certificates)):
        hostile.leader, hostile.members = bare.url, [bare.url]
        async with plain(
            hostile.url,
            members=[bare.url] if known else [],
            token="s3cret",
            ca_file=certificates.ca,
            insecure_plain_token=insecure,
        ) as client:
            with pytest.raises(ApiError, match="not followed: the token would leave https"):
                await client.send("t", "x")
    assert bare.seen == []
    assert hostile.tokens == {"Bearer s3cret"}


async def test_without_a_token_a_redirect_out_of_tls_is_followed(
    plain: Any, certificates: Certificates
) -> None:
    """As before there were tokens: the broker behind a proxy that ends TLS."""
    front, behind = Broker(), Broker()
    async with serving(behind), serving(front, tls=server_tls(certificates)):
        front.leader, front.members = behind.url, [behind.url]
        async with plain(front.url, ca_file=certificates.ca) as client:
            assert (await client.send("t", "x")).id == "~1"


async def test_a_member_beyond_this_machine_gets_no_plain_token(plain: Any) -> None:
    """A broker on loopback names a member by plain http: the error says why it is not followed."""
    follower = Broker()
    async with serving(follower):
        member = "http://192.0.2.1:8711"
        follower.leader, follower.members = member, [member]
        async with plain(follower.url, token="s3cret") as client:
            with pytest.raises(ApiError, match="not followed: the token would go over plain http"):
                await client.send("t", "x")


async def test_a_private_authority_and_a_client_certificate(
    plain: Any, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By arguments or by variables; a server without the right certificate gets no token."""
    broker = Broker("s3cret")
    c = certificates
    async with serving(broker, tls=server_tls(c, asks=True)):
        pair = {"client_cert": c.client, "client_key": c.client_key}
        async with plain(broker.url, token="s3cret", ca_file=c.ca, **pair) as client:
            assert (await client.send("t", "x")).id == "~1"
        for given in ({"ca_file": c.ca}, pair):
            async with plain(broker.url, token="s3cret", **given) as client:
                with pytest.raises((NotReached, AnswerLost)):
                    await client.send("t", "x")
        assert len(broker.seen) == 1
        monkeypatch.setenv("DELAYLOG_TOKEN", "s3cret")
        monkeypatch.setenv("DELAYLOG_CA_FILE", str(c.ca))
        monkeypatch.setenv("DELAYLOG_CLIENT_CERT", str(c.client))
        monkeypatch.setenv("DELAYLOG_CLIENT_KEY", str(c.client_key))
        async with plain(broker.url) as client:
            assert (await client.send("t", "x")).id == "~1"
    assert broker.tokens == {"Bearer s3cret"}


@pytest.mark.parametrize(
    "answer",
    [
        b"%s\r\n\r\n",
        b"HTTP/1.1 %s\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n%s\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad name: %s\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: %s\r\n\r\n",
        b"HTTP/1.1 307 Moved\r\nLocation: http://%s\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 307 Moved\r\nLocation: http://x/%s\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 500 %s\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n%s",
    ],
)
async def test_no_garbage_brings_the_token_into_a_traceback(plain: Any, answer: bytes) -> None:
    """A server sends it back where an answer should be."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer % b"s3cret-of-ours")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, plain(url, token="s3cret-of-ours") as client:
        with pytest.raises(ClientError) as caught:
            await client.topics()
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "s3cret" not in shown
    assert "s3cret" not in str(getattr(caught.value, "location", ""))
