"""Where a client of a cluster goes: to the leader it is sent to, never to strangers, and how long.

Scripted servers stand for the nodes. Each answers from a list of (status, members, headers) and
keeps on with the last; what it was asked stays to be looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from delaylog.client import AnswerLate, AnswerLost, ApiError, AsyncPlainClient, NotReached
from delaylog.client.wire.exchange import Answer, refusal
from tests.client.either import PLAIN_CLIENTS
from tests.client.scenes import serving

NOT_READY = {"code": "not_ready", "detail": "no leader"}
SENT = {"id": "~1", "deliver_at_ms": 7, "result": "created"}
CLUSTER = "/v1/cluster"


@pytest.fixture(autouse=True, params=PLAIN_CLIENTS, ids=["async", "sync"])
def _kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with either client."""
    monkeypatch.setitem(globals(), "AsyncPlainClient", request.param)
    if "hang" not in request.node.name and "hung" not in request.node.name:
        request.getfixturevalue("no_questions")


class Node:
    """One scripted node."""

    def __init__(self) -> None:
        self.url = ""
        self.script: list[Any] = []
        self.cluster: Any = None
        self.seen: list[tuple[str, str | None]] = []
        self.served = AsyncExitStack()

    async def start(self) -> None:
        self.url = await self.served.enter_async_context(serving(self.handle))

    async def stop(self) -> None:
        await self.served.aclose()

    async def handle(self, request: web.Request) -> web.Response:
        self.seen.append((request.raw_path, request.headers.get("Authorization")))
        if request.path == CLUSTER:
            return web.json_response(self.cluster)
        status, shape, headers = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return web.json_response(shape, status=status, headers=headers)

    @property
    def calls(self) -> list[str]:
        return [path for path, _ in self.seen]


def moved(node: Node, path: str) -> Any:
    return 307, {}, {"Location": node.url + path}


@asynccontextmanager
async def two_nodes(first: type[Node] = Node) -> AsyncIterator[tuple[Node, Node]]:
    """Two nodes, each of which knows both."""
    nodes = first(), Node()
    for node in nodes:
        await node.start()
    for node in nodes:
        node.cluster = {"members": [{"http": each.url} for each in nodes]}
    try:
        yield nodes
    finally:
        for node in nodes:
            await node.stop()


PATH = "/v1/ns/default/topics/t/messages"


async def test_a_redirect_to_a_member_is_followed_with_the_token() -> None:
    """Unknown at first: the node that was asked names its members. Later calls go there at once."""
    async with two_nodes() as (one, two):
        one.script, two.script = [moved(two, PATH)], [(200, SENT, {})]
        async with AsyncPlainClient(one.url, token="secret") as client:
            for _ in range(2):
                assert (await client.send("t", "x")).id == "~1"
        assert one.calls == [PATH, CLUSTER]
        assert two.seen == [(PATH, "Bearer secret")] * 2


async def test_nodes_that_name_each_other() -> None:
    """After a few hops it is said."""
    async with two_nodes() as (one, two):
        one.script, two.script = [moved(two, PATH)], [moved(one, PATH)]
        async with AsyncPlainClient(one.url, members=[two.url]) as client:
            with pytest.raises(ApiError) as caught:
                await client.send("t", "x")
        assert caught.value.status == 307
        assert len(one.calls) + len(two.calls) == 6


def test_a_redirect_without_a_body_says_where_to() -> None:
    """As a broker answers it; other servers are named as such."""
    there = refusal(Answer(307, b"", location="http://b/x?t=s3cret"), "s3cret")
    assert there.detail.startswith("redirected to http://b/x")
    assert "s3cret" not in there.detail
    assert "of another server: <html>" in refusal(Answer(502, b"<html>")).detail


async def test_an_idempotent_call_outlasts_nodes_that_name_each_other() -> None:
    """As after a fall: each still thinks that the other one leads."""
    async with two_nodes() as (one, two):
        one.script, two.script = [moved(two, PATH)], [moved(one, PATH)] * 7 + [(200, SENT, {})]
        async with AsyncPlainClient(one.url, members=[two.url]) as client:
            assert (await client.send("t", "x", idempotency_key="k")).id == "~1"
        one.script, two.script = [moved(two, PATH)], [moved(one, PATH)]
        async with AsyncPlainClient(
            one.url, members=[two.url], failover=timedelta(seconds=0.2)
        ) as client:
            with pytest.raises(ApiError) as caught:
                await client.send("t", "x", idempotency_key="k")
            assert caught.value.status == 307


async def test_an_idempotent_call_waits_for_a_leader() -> None:
    """Reads, and sends with a key or a sequence; a plain send shows the refusal at once."""
    async with two_nodes() as (one, two):
        two.script = [(503, NOT_READY, {})]
        async with AsyncPlainClient(one.url, members=[two.url]) as client:
            one.script = [(503, NOT_READY, {}), (503, NOT_READY, {}), (200, SENT, {})]
            assert (await client.send("t", "x", idempotency_key="k")).id == "~1"
            one.script = [(503, NOT_READY, {}), (200, {"topics": []}, {})]
            assert await client.topics() == {"topics": []}
            one.script = [(503, NOT_READY, {})]
            with pytest.raises(ApiError) as caught:
                await client.send("t", "x")
            assert caught.value.code == "not_ready"
        async with AsyncPlainClient(one.url, failover=timedelta(seconds=0.3)) as client:
            before = len(one.calls)
            with pytest.raises(ApiError):
                await client.send("t", "x", idempotency_key="k")
            assert 2 <= len(one.calls) - before <= 6


async def test_a_node_that_is_gone() -> None:
    """Nothing was done, so any call goes to another node, if there is one."""
    async with two_nodes() as (one, two):
        two.script = [(200, SENT, {})]
        await one.stop()
        async with AsyncPlainClient(one.url, members=[two.url]) as client:
            assert (await client.send("t", "x")).id == "~1"
        async with AsyncPlainClient(one.url) as client:
            with pytest.raises(NotReached, match="Connection refused"):
                await client.send("t", "x", idempotency_key="k")


async def test_an_answer_that_was_lost() -> None:
    """Sent again elsewhere under its key, shown without one."""
    async with two_nodes() as (one, two):
        one.script, two.script = [(200, [], {})], [(200, SENT, {})]

        async def lose(request: web.Request) -> web.Response:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        one.handle = lose  # type: ignore[method-assign]
        await one.stop()
        await one.start()
        async with AsyncPlainClient(one.url, members=[two.url]) as client:
            assert (await client.send("t", "x", idempotency_key="k")).id == "~1"
        async with AsyncPlainClient(one.url, members=[two.url]) as client:
            with pytest.raises(AnswerLost):
                await client.send("t", "x")


async def test_a_call_whose_answer_was_lost_stays_in_doubt() -> None:
    """No node is reached any more, but the first try may have been carried out."""
    async with two_nodes() as (one, two):

        async def lose_and_go(request: web.Request) -> web.Response:
            assert request.transport is not None
            request.transport.abort()
            task = asyncio.ensure_future(one.stop())
            ending.add(task)
            return web.Response()

        ending: set[asyncio.Future[None]] = set()
        one.handle = lose_and_go  # type: ignore[method-assign]
        await one.stop()
        await one.start()
        await two.stop()
        async with AsyncPlainClient(
            one.url, members=[two.url], failover=timedelta(seconds=0.5)
        ) as client:
            with pytest.raises(AnswerLost, match="then"):
                await client.send("t", "x", idempotency_key="k")
        await asyncio.gather(*ending)


class Hanging(Node):
    """A node that takes a call and does not answer it."""

    async def handle(self, request: web.Request) -> web.Response:
        self.seen.append((request.raw_path, None))
        await asyncio.sleep(4)
        return web.json_response({}, status=503)


async def test_a_node_that_hangs_leaves_time_for_another_one() -> None:
    """What may be repeated goes on elsewhere after half of its time."""
    async with two_nodes(Hanging) as (one, two):
        two.script, two.cluster = [(200, SENT, {})], None
        async with AsyncPlainClient(one.url, members=[two.url]) as client:
            sent = await client.send("t", "x", idempotency_key="a", timeout=timedelta(seconds=3))
            assert sent.id == "~1"
            # Meanwhile the other node is asked for the leader, and does not know it.
            assert one.calls == [PATH]
            assert [path for path in two.calls if path != CLUSTER] == [PATH]


async def test_the_call_after_one_that_hung_goes_to_another_node() -> None:
    """What must not be repeated has all of its time; the node is left all the same."""
    async with two_nodes(Hanging) as (one, two):
        two.script, two.cluster = [(200, SENT, {})], None
        async with AsyncPlainClient(one.url, members=[two.url]) as client:
            with pytest.raises(AnswerLate):
                await client.send("t", "x", timeout=timedelta(seconds=1))
            assert set(two.calls) <= {CLUSTER}
            assert (await client.send("t", "x")).id == "~1"
            assert one.calls == [PATH]
            assert [path for path in two.calls if path != CLUSTER] == [PATH]
