"""`subscribe` of asyncio clients by streams: where it uses one, and what happens when one ends."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from delaylog.client import AsyncClient, ClientError, Settled
from delaylog.client._async import link, streams
from delaylog.client._async.message import AsyncMessage
from delaylog.client.wire import stream_frames
from tests.client.scenes import answer_of_receive, bulk, serving
from tests.waiting import until


def streams_of(url: str) -> int:
    """Open streams of a broker."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    (line,) = [line for line in text.splitlines() if line.startswith("delaylog_streams ")]
    return int(float(line.split()[1]))


async def await_streams(url: str, count: int) -> None:
    for _ in range(500):
        if await asyncio.to_thread(streams_of, url) == count:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"never {count} streams")


def answer(request: web.Request) -> web.Response:
    """What a broker without streams answers: a message, and that it is settled."""
    if request.path.endswith("/receive"):
        return answer_of_receive(1)
    return bulk(v=1, n=1, done=1, gone=b"", unknown=b"")


class Cutter:
    """A TCP proxy that cuts connections when it is told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, there_writer]

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65_536):
                    target.write(data)
                    await target.drain()
            except ConnectionError:
                pass
            finally:
                target.close()

        await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))

    def cut(self) -> None:
        """Reset all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


@asynccontextmanager
async def cutting(url: str) -> AsyncIterator[tuple[str, Cutter]]:
    """A proxy before a broker."""
    cutter = Cutter(int(url.rpartition(":")[2]))
    server = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", cutter
    finally:
        cutter.cut()
        server.close()


async def test_messages_come_and_are_settled_in_band(
    two_brokers: tuple[str, str], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = two_brokers[0]
    async with AsyncClient(url) as client:
        asked: list[str] = []
        carry = client._links[0].transport.carry

        async def counted(call: Any, **more: Any) -> Any:
            asked.append(call.path)
            return await carry(call, **more)

        await client.send_many(topic, [str(n) for n in range(100)])
        monkeypatch.setattr(client._links[0].transport, "carry", counted)
        seen = []
        async for message in client.subscribe(topic):
            assert await message.ack() is Settled.DONE
            seen.append(message.text)
            if len(seen) == 100:
                break
        assert seen == [str(n) for n in range(100)]
        await await_streams(url, 0)
        assert asked == [], "not one call was made"
        assert (await client.stats(topic)).counts.acked == 100


async def test_no_more_than_max_are_fetched(two_brokers: tuple[str, str], topic: str) -> None:
    async with AsyncClient(two_brokers[0]) as client:
        await client.send_many(topic, [str(n) for n in range(50)])
        seen = 0
        async for message in client.subscribe(topic, max=4):
            await asyncio.sleep(0.02)
            counts = (await client.stats(topic)).counts
            assert counts.leased <= 5, "the one in hand, and four"
            await message.ack()
            seen += 1
            if seen == 10:
                break


async def test_large_messages_do_not_use_up_the_credit(
    two_brokers: tuple[str, str], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_frames, "BYTES", 4_000)
    async with AsyncClient(two_brokers[0]) as client, asyncio.timeout(20):
        await client.send_many(topic, [bytes(1_000)] * 20)
        seen = 0
        async for message in client.subscribe(topic, max=100):
            await message.ack()
            seen += 1
            if seen == 20:
                break


@pytest.mark.parametrize("at", ["begin", "_grant"])
async def test_a_loop_that_is_cancelled_releases_what_it_has_in_hand(
    two_brokers: tuple[str, str], topic: str, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """While the attempt at a message begins, or while credit is given for those that came."""
    hangs = asyncio.Event()

    async def hang(*given: Any, **times: Any) -> None:
        hangs.set()
        await asyncio.sleep(60)

    async with AsyncClient(two_brokers[0]) as client:
        await client.send_many(topic, ["a", "b"])
        loop = client.subscribe(topic)
        await anext(loop)
        ((_, waiting),) = client._fetched.items()
        stream = waiting.deliveries._stream
        await client.send(topic, "c")
        await until(lambda: stream._inbox)
        monkeypatch.setattr(*((client if at == "begin" else stream), at, hang))
        task = asyncio.ensure_future(anext(loop))
        await hangs.wait()
        monkeypatch.undo()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: client._fetched == {})
        counts = (await client.stats(topic)).counts
        assert (counts.leased, counts.ready) == (1, 2)


async def test_a_lease_that_has_ended_is_told(two_brokers: tuple[str, str], topic: str) -> None:
    async with AsyncClient(two_brokers[0]) as client:
        await client.put_topic(topic, {"backoff": {"first_ms": 60_000}})
        await client.send(topic, "x")
        # A busy machine may need a second before the message is in hand.
        async for message in client.subscribe(topic, lease=timedelta(seconds=3)):
            await asyncio.sleep(3.5)
            assert await message.ack() is Settled.GONE
            assert message.lease_lost
            break


async def test_messages_that_came_while_the_last_one_was_handled_keep_their_leases(
    two_brokers: tuple[str, str], topic: str
) -> None:
    lease = timedelta(seconds=2)
    async with AsyncClient(two_brokers[0]) as client:
        await client.send(topic, "first")
        leases = []
        async for message in client.subscribe(topic, lease=lease):
            if not leases:
                await client.send_many(topic, ["a", "b"])
            # Of a and b, more than half of the lease is over when a is yielded.
            await asyncio.sleep(1.2)
            await message.ack()
            leases.append(message.lease)
            if len(leases) == 3:
                break
        assert leases[1] == leases[2], "b was not delivered again"


@pytest.mark.parametrize("cuts", [0.25, 0.6])
async def test_streams_that_are_cut(two_brokers: tuple[str, str], topic: str, cuts: float) -> None:
    """Each message is handled; none whose ack was answered comes again."""
    count = 300
    async with cutting(two_brokers[0]) as (url, cutter), AsyncClient(two_brokers[0]) as control:
        await control.send_many(topic, [str(n) for n in range(count)])
        ends = asyncio.create_task(_cut_again_and_again(cutter, cuts))
        done: set[str] = set()
        again: list[str] = []
        async with asyncio.timeout(150), AsyncClient(url) as client:
            async for message in client.subscribe(topic, lease=timedelta(milliseconds=1_500)):
                if message.text in done:
                    again.append(message.text)
                await asyncio.sleep(0.003)
                try:
                    result = await message.ack()
                except ClientError:
                    continue
                if result is Settled.DONE:
                    done.add(message.text)
                if (await control.stats(topic)).counts.acked == count:
                    break
            ends.cancel()
        assert again == []
        assert cutter.connections > 3


async def _cut_again_and_again(cutter: Cutter, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        cutter.cut()


async def test_a_broker_without_streams_is_polled(topic: str) -> None:
    """An older broker answers 404; the loop asks for no further stream."""
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path.rpartition("/")[2])
        if asked[-1] == "stream":
            return web.json_response({"code": "unknown", "detail": "there is nothing"}, status=404)
        return answer(request)

    async with serving(handle) as url, AsyncClient(url) as client:
        messages = client.subscribe(topic)
        for _ in range(3):
            await asyncio.wait_for(anext(messages), 60)
    assert asked.count("stream") == 1
    assert asked.count("receive") >= 3


async def test_an_upgrade_that_a_proxy_swallows(topic: str) -> None:
    """The proxy answers 200 without an upgrade, as for a plain GET."""

    async def handle(request: web.Request) -> web.Response:
        if request.path.endswith("/stream"):
            return web.json_response({})
        return answer(request)

    async with serving(handle) as url, AsyncClient(url) as client:
        await asyncio.wait_for(anext(client.subscribe(topic)), 10)


async def test_a_redirect_is_not_followed_by_the_library(
    two_brokers: tuple[str, str], topic: str
) -> None:
    """Only the route of the client, which checks addresses, may lead to another node."""
    elsewhere: list[str] = []

    async def stranger(request: web.Request) -> web.Response:
        elsewhere.append(request.path)
        return web.json_response({}, status=404)

    async with serving(stranger) as strange:

        async def handle(request: web.Request) -> web.Response:
            if request.path.endswith("/stream"):
                return web.Response(status=307, headers={"Location": f"{strange}{request.path}"})
            return answer(request)

        async with serving(handle) as url, AsyncClient(url) as client:
            await asyncio.wait_for(anext(client.subscribe(topic)), 10)
    assert elsewhere == []


async def test_a_stream_of_a_tag_with_a_comma(two_brokers: tuple[str, str], topic: str) -> None:
    async with AsyncClient(two_brokers[0]) as client:
        await client.send(topic, "other", tags=["red"])
        await client.send(topic, "wanted", tags=["red,\\green"])
        messages = client.subscribe(topic, tags=["red,\\green"])
        found = await anext(messages)
        assert found.text == "wanted"
        await await_streams(two_brokers[0], 1)
        await found.ack()
        await messages.aclose()


async def test_messages_whose_tags_do_not_match_do_not_stop_the_stream(
    two_brokers: tuple[str, str], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def split(
        messages: list[AsyncMessage], *_: object
    ) -> tuple[list[AsyncMessage], list[AsyncMessage]]:
        return [m for m in messages if m.text == "b"], [m for m in messages if m.text == "a"]

    # A broker that checks tags as loosely as it may.
    monkeypatch.setattr(link, "split_by_tags", split)
    async with AsyncClient(two_brokers[0]) as client:
        await client.send_many(topic, ["a", "b"], tags=["t"])
        began_s = time.monotonic()
        async for message in client.subscribe(topic, tags=["t"], exact_tags=True):
            assert message.text == "b"
            await message.ack()
            break
        assert time.monotonic() - began_s < client.timeout_s / 2
        assert client.mismatched >= 1


async def test_several_shards_are_polled(two_brokers: tuple[str, str], topic: str) -> None:
    async with AsyncClient(*two_brokers) as client:
        await client.send_many(topic, [str(n) for n in range(10)])
        seen = set()
        async for message in client.subscribe(topic):
            assert message.batch.stream is None
            await message.ack()
            seen.add(message.text)
            if len(seen) == 10:
                break


async def test_a_stream_of_nonsense_is_left(
    topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame that cannot be read ends the stream, and polls go on."""
    monkeypatch.setattr(streams, "AGAIN_WAIT", timedelta(milliseconds=1))

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/stream"):
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await socket.send_bytes(b"\x81\xa6bodies\xc4\x01x")
            async for _ in socket:
                pass
            return socket
        return answer(request)

    async with serving(handle) as url, AsyncClient(url) as client:
        await asyncio.wait_for(anext(client.subscribe(topic)), 10)
    assert any("a frame of the stream cannot be read" in line for line in caplog.messages)


@pytest.mark.parametrize("greets", [False, True])
async def test_a_stream_that_is_left_is_closed(
    topic: str, monkeypatch: pytest.MonkeyPatch, greets: bool
) -> None:
    """The node is silent, while it opens the stream or afterwards, and another one leads."""
    sockets: list[aiohttp.ClientWebSocketResponse] = []
    connect = aiohttp.ClientSession.ws_connect

    async def kept(*asked: Any, **how: Any) -> aiohttp.ClientWebSocketResponse:
        sockets.append(await connect(*asked, **how))
        return sockets[-1]

    monkeypatch.setattr(aiohttp.ClientSession, "ws_connect", kept)
    ends = asyncio.Event()

    async def silent(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        if greets and request.path.endswith("/stream"):
            await socket.prepare(request)
        await ends.wait()
        return socket

    async def leads(request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/cluster":
            members = [{"http": url} for url in (first, second)]
            return web.json_response({"leader": {"http": second}, "members": members})
        if request.path.endswith("/stream"):
            return web.json_response({}, status=404)
        return answer(request)

    async with serving(silent) as first, serving(leads) as second:
        async with AsyncClient(f"{first},{second}") as client:
            await asyncio.wait_for(anext(client.subscribe(topic)), 10)
        ends.set()
    assert [each._response.connection for each in sockets] == [None] * greets


async def test_close_ends_a_loop_that_waits(two_brokers: tuple[str, str], topic: str) -> None:
    client = AsyncClient(two_brokers[0])
    seen: list[Any] = []

    async def consume() -> None:
        seen.extend([message async for message in client.subscribe(topic)])

    task = asyncio.create_task(consume())
    await await_streams(two_brokers[0], 1)
    await client.close()
    # It would wait for ever.
    await asyncio.wait_for(task, 30)
    assert seen == []
    await await_streams(two_brokers[0], 0)
