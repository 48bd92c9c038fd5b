"""Live reads: events tell what differs, nothing is read without a client, and how streams end."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest

from delaylog.broker.calls.answers import Answer
from delaylog.broker.calls.context import JSON
from delaylog.broker.host.waiters import OpenStreams, StopsError
from delaylog.broker.streams.live import READS_MAX, Live
from tests.broker.conftest import Secured
from tests.broker.web.streams import Events, listening

QUICK = {
    "delaylog.broker.streams.live.EVERY_SECONDS": 0.1,
    "delaylog.broker.web.responses.UNHEARD_SECONDS": 2.0,
}


@pytest.fixture(scope="module")
def broker(sound_broker: Any) -> Any:
    return sound_broker(constants=QUICK)


def path_of(*reads: str, **query: str) -> str:
    return f"/v1/live?{urlencode([*(('read', each) for each in reads), *query.items()])}"


def live(
    url: str, *reads: str, ticket: str = "", **headers: str
) -> AbstractAsyncContextManager[Events]:
    query = {"ticket": ticket} if ticket else {}
    return listening(url, path_of(*reads, **query), **headers)


async def test_an_event_has_the_answers_that_differ(broker: Any, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {})
    async with live(broker.url, path, f"{path}/groups") as events:
        first = await events.told()
        assert first[path] == broker.call("GET", path).json
        assert first[f"{path}/groups"] == broker.call("GET", f"{path}/groups").json
        assert await events.told() == {}
        broker.post(f"{path}/pause", {})
        assert (await events.news())[path]["paused"] is True
        assert await events.told() == {}


async def test_a_topic_that_is_created_again_is_an_event(broker: Any, topic: str) -> None:
    """A topic may be deleted and created while its page is open. What is missing counts as no
    problem, however often it is looked for.
    """

    def problems() -> list[bytes]:
        lines = broker.call("GET", "/metrics").body.splitlines()
        return [each for each in lines if b'code="unknown"' in each]

    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {})
    before = problems()
    async with live(broker.url, path) as events:
        assert (await events.told())[path]["topic"] == topic
        broker.call("DELETE", path)
        assert await events.news() == {path: None}
        assert await events.told() == {}
        broker.call("PUT", path, {})
        assert (await events.news())[path]["topic"] == topic
    assert problems() == before


async def test_a_refused_read_is_null_and_not_repeated(broker: Any, topic: str) -> None:
    """So is a stream; the other reads go on."""
    path = f"/v1/topics/{topic}"
    stream = f"{path}/groups/default/stream"
    broker.call("PUT", path, {})
    wrong = (f"{path}?limt=1", "/v1/topics/none", "/v1/topics/none:x", stream, path_of(path), "/x")
    async with live(broker.url, path, *wrong) as events:
        first = await events.told()
        assert [first[each] for each in wrong] == [None] * len(wrong)
        for _ in range(3):
            assert await events.told() == {}
        broker.post(f"{path}/pause", {})
        assert (await events.news()).keys() == {path}


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?read=",
        "?read=/v1/clock&x=1",
        "?" + "&".join([f"read=/{n}" for n in range(READS_MAX + 1)]),
    ],
)
def test_a_query_without_reads_is_refused(broker: Any, assert_problem: Any, query: str) -> None:
    assert_problem(broker.call("GET", f"/v1/live{query}"), 400, "bad_request", field="read")


def test_a_stream_has_no_head(broker: Any) -> None:
    assert broker.call("HEAD", path_of("/v1/clock")).status == 405


async def test_nothing_is_read_without_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor before the client has taken the event before. A refused read is not repeated."""
    monkeypatch.setattr("delaylog.broker.streams.live.EVERY_SECONDS", 0.0)
    asked: list[str] = []

    async def read(path: str) -> Answer:
        asked.append(path)
        return Answer(b"%d" % len(asked), JSON, 403 if path == "/no" else 200)

    streams = OpenStreams()
    pieces = Live("read=/a&read=/no", read, streams).answer().pieces
    await asyncio.sleep(0.05)
    assert (asked, len(streams)) == ([], 0)
    assert await anext(pieces) == b'data: {"/a":1,"/no":null}\n\n'
    await asyncio.sleep(0.05)
    assert (asked, len(streams)) == (["/a", "/no"], 1)
    assert await anext(pieces) == b'data: {"/a":3}\n\n'
    await pieces.aclose()
    await asyncio.sleep(0.05)
    assert (asked, len(streams)) == (["/a", "/no", "/a"], 0)


async def test_a_later_time_alone_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Except of the clock and the overview. In a text, the words that hold a time stay words."""
    monkeypatch.setattr("delaylog.broker.streams.live.EVERY_SECONDS", 0.0)
    reads = ("/v1/clock", "/v1/overview?minutes=60", "/v1/topics/t/stats")
    answer: dict[str, Any] = {}

    async def read(_: str) -> Answer:
        return Answer(orjson.dumps(answer), JSON)

    query = urlencode([("read", each) for each in reads])
    pieces = Live(query, read, OpenStreams()).answer().pieces
    told: list[list[str]] = []
    for said in ("a", "a", "b", '"now_ms":1', '"now_ms":2', '"now_ms":2'):
        answer = {"said": said, "now_ms": len(told), "more": 1}
        told.append(list(orjson.loads((await anext(pieces))[6:])))
    await pieces.aclose()
    timed, every = [*reads[:2]], [*reads]
    assert told == [every, timed, every, every, every, timed]


async def test_reads_count_as_calls_of_the_principal(secured: Secured, topic: str) -> None:
    """Otherwise a stream would be a way around the limit. What one round leaves out comes first in
    the next, so each read has its turn.
    """
    path = f"/v1/topics/{topic}"
    secured.call("PUT", path, {})
    secured.call("PUT", "/v1/principals/slow", {"grants": ["read"], "calls_per_s": 2})
    token = secured.call("POST", "/v1/principals/slow/rotate", {}).json["token"]
    reads = [path, f"{path}/groups", f"{path}/claims", f"{path}/schedules", "/v1/jobs"]
    async with live(secured.broker.url, *reads, Authorization=f"Bearer {token}") as events:
        first = await events.told()
        # The stream itself is a call.
        assert len(first) < len(reads)
        found = dict(first)
        while len(found) < len(reads):
            found |= await events.told()
        assert None not in found.values()


async def test_a_node_that_stops_ends_its_streams() -> None:
    async def read(_: str) -> Answer:
        return Answer(b"1", JSON)

    streams = OpenStreams()
    pieces = Live("read=/a", read, streams).answer().pieces
    await anext(pieces)
    streams.end_all(StopsError("the node stops; connect again"))
    assert (await anext(pieces)).startswith(b"event: end\n")
    assert await anext(pieces, None) is None


async def test_a_stream_ends_with_the_rights(secured: Secured, topic: str) -> None:
    path = f"/v1/topics/{topic}"
    secured.call("PUT", path, {})
    token = secured.principal("looks", f"viewer:{topic}")
    other = "/v1/topics/other"
    secured.call("PUT", other, {})
    headers = {"Authorization": f"Bearer {token}"}
    async with live(secured.broker.url, path, other, **headers) as events:
        first = await events.told()
        assert first[path]["topic"] == topic
        assert first[other] is None
        secured.call("DELETE", "/v1/principals/looks")
        assert await events.news() == ("end", "unauthorized")


async def test_a_stream_ends_with_the_session(
    secured: Secured, topic: str, assert_problem: Any
) -> None:
    opened = secured.call("POST", "/v1/session", {}, secured.token("viewer"))
    cookie = {"Cookie": opened.headers["Set-Cookie"].partition(";")[0]}
    own = cookie | {"Delaylog-CSRF": opened.json["csrf"]}
    async with live(secured.broker.url, "/v1/topics", **cookie) as events:
        await events.told()
        assert secured.broker.call("DELETE", "/v1/session", None, own).status == 200
        assert await events.news() == ("end", "unauthorized")
    assert secured.call("GET", path_of("/v1/clock"), token=None).status == 401
    ticket = secured.call("POST", "/v1/session/ticket", {}).json["ticket"]
    async with live(secured.broker.url, "/v1/clock", ticket=ticket) as events:
        assert "/v1/clock" in await events.told()


async def test_the_number_of_streams_is_bounded(start_broker: Any, assert_problem: Any) -> None:
    """Beyond the limit 429 with Retry-After; the place of a stream that has ended is free."""
    broker = start_broker(constants={"delaylog.broker.streams.live.STREAMS_MAX": 2})
    async with live(broker.url, "/v1/clock") as one:
        await one.told()
        async with live(broker.url, "/v1/clock") as other:
            await other.told()
            refused = await asyncio.to_thread(broker.call, "GET", path_of("/v1/clock"))
            assert "2 live streams are open" in assert_problem(refused, 429, "quota")["detail"]
            assert refused.headers["Retry-After"] == "1"
            assert await other.told()
        await asyncio.to_thread(broker.await_metric, "delaylog_streams", 1)
        async with live(broker.url, "/v1/clock") as again:
            assert "/v1/clock" in await again.told()


async def test_a_stream_holds_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Purpose: reads of large answers cost no more memory than one. Method: a client that does not
    take the first event; the reads after it are not made."""
    monkeypatch.setattr("delaylog.broker.streams.live.EVENT_BYTES", 100)
    asked: list[str] = []

    async def read(path: str) -> Answer:
        asked.append(path)
        return Answer(b"%d" % 10**60, JSON)

    pieces = Live("&".join(f"read=/{n}" for n in range(5)), read, OpenStreams()).answer().pieces
    first = await anext(pieces)
    assert asked == ["/0", "/1"]
    events = [first, await anext(pieces), await anext(pieces)]
    told = [list(json.loads(each.removeprefix(b"data: "))) for each in events]
    assert told == [["/0", "/1"], ["/2", "/3"], ["/4"]]
    await pieces.aclose()


def test_a_client_that_takes_nothing_is_cut(broker: Any, topic: str) -> None:
    """Purpose: a slow reader holds one answer, and its reads wait for it."""
    path = f"/v1/topics/{topic}"
    for n in range(READS_MAX):
        large = {"id": f"m{n}", "body": "x" * 2_000_000, "delay_ms": 3_600_000}
        broker.post(f"{path}/messages", large)
    reads = [f"{path}/messages/m{n}" for n in range(READS_MAX)]
    before = broker.memory_bytes("VmHWM")
    with broker.connect() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        sock.sendall(f"GET {path_of(*reads)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        broker.await_metric("delaylog_streams", 1)
        broker.await_metric("delaylog_streams", 0)
    # All of the answers would be 40 MB.
    assert broker.memory_bytes("VmHWM") - before < 20 << 20
