"""Streams of a cluster: followers redirect, and a stream ends when its node leads no more."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from delaylog.client import AsyncClient
from tests.broker.cluster.three_nodes import ThreeNodes, steady
from tests.broker.web.streams import path_of, streaming


@steady
def test_a_follower_redirects(three: ThreeNodes) -> None:
    """Also with `?read=local`: a stream leases messages, so it is no read."""
    leader, follower = three.leader(), three.followers()[0]
    path = path_of("t", messages=1)
    answer = three.call(follower, "GET", path, headers={"Accept": "text/event-stream"})
    assert answer.status == 307
    assert answer.headers["Location"] == f"{three.url(leader)}{path}"
    local = three.call(
        follower, "GET", f"{path}&read=local", headers={"Accept": "text/event-stream"}
    )
    assert local.status == 307


@steady
@pytest.mark.parametrize("messages", [0, 10])
async def test_a_stream_ends_with_the_leadership(three: ThreeNodes, messages: int) -> None:
    """Also one without credit, which asks for nothing at that moment."""
    node = SimpleNamespace(url=three.url(three.leader()))
    async with streaming(node, "t", messages=messages) as stream:
        await asyncio.to_thread(three.hand_over)
        code, reason = await stream.closing()
    assert code == 4503
    assert reason.startswith("not_ready: ")


@steady
async def test_a_subscription_follows_the_leader(three: ThreeNodes) -> None:
    """Sends go on while the leadership is handed over twice; each message comes once."""
    topic = three.fresh("follow")
    url = ",".join(three.url(node) for node in (1, 2, 3))
    async with AsyncClient(url) as client:

        async def send() -> None:
            for n in range(60):
                await client.send(topic, str(n), id=str(n))
                if n in (20, 40):
                    await asyncio.to_thread(three.hand_over)

        sending = asyncio.create_task(send())
        seen: list[str] = []
        async with asyncio.timeout(60):
            async for message in client.subscribe(topic):
                seen.append(message.text)
                await message.ack()
                if len(set(seen)) == 60:
                    break
        await sending
    # A message whose ack was under way at a hand-over may come again.
    assert len(seen) <= 62
