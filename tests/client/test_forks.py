"""Clients of a process that forks, at a real broker: parent and child take nothing from each other.

Embedded brokers refuse the calls of a child: tests/broker/embedded/test_forks.py.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from delaylog.client import AsyncClient, Client
from tests.programs import forked, status_of
from tests.waiting import await_that

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
OTHER_LOOP = "belongs to the event loop that used it first"


@pytest.fixture
def client(two_brokers: tuple[str, str]) -> Iterator[Client]:
    """A client that has been used."""
    with Client(two_brokers[0]) as opened:
        opened.topics()
        yield opened


def works(client: Client, topic: str, n: int = 20) -> None:
    """Send, look, receive and ack in this process alone; each answer is that of its call."""
    queued = [client.send_soon(topic, f"{number}", id=f"{number}") for number in range(n)]
    for number in range(n, 2 * n):
        assert client.send(topic, f"{number}", id=f"{number}").id == f"{number}"
        assert client.get(topic, f"{number}").id == f"{number}"
    assert [sending.result(timedelta(seconds=20)).id for sending in queued] == [
        f"{number}" for number in range(n)
    ]
    seen = []
    for message in client.subscribe(topic):
        with message:
            assert message.text == message.id
            seen.append(int(message.text))
        if len(seen) == 2 * n:
            break
    assert sorted(seen) == list(range(2 * n))
    assert client.stats(topic).counts.acked == 2 * n


def test_parent_and_children_use_one_client(client: Client, topic: str) -> None:
    """The processes are forked while threads of the parent are in the middle of calls."""
    over = threading.Event()

    def churn() -> None:
        while not over.is_set():
            client.send_soon(f"{topic}-churn", "x")
            client.ack(client.receive(f"{topic}-churn", max=5))

    threads = [threading.Thread(target=churn) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        topics = [f"{topic}-{number}" for number in range(3)]
        children = [forked(lambda own=own: works(client, own)) for own in topics]
        works(client, topic)
        assert [status_of(child) for child in children] == [0, 0, 0]
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_child_yields_and_releases_nothing_of_a_loop_of_its_parent(
    client: Client, topic: str
) -> None:
    client.send_many(topic, ["0", "1", "2", "3"])
    loop = client.subscribe(topic)
    with next(loop) as message:
        assert message.text == "0"

    def child() -> None:
        client.send(topic, "of the child")
        with next(loop) as message:
            assert message.text == "of the child"
        client.close()

    assert status_of(forked(client.close)) == 0
    assert status_of(forked(child)) == 0
    assert client.stats(topic).counts.leased == 3
    for number in range(1, 4):
        with next(loop) as message:
            assert (message.text, message.attempts) == (f"{number}", 1)
    assert client.stats(topic).counts.acked == 5


def test_a_child_runs_no_part_of_the_worker_of_its_parent(client: Client, topic: str) -> None:
    """It returns none of its messages, waits for no thread, and may run its own."""
    seen: list[str] = []
    gate = threading.Event()

    @client.consumer(topic)
    def handle(message: Any) -> None:
        assert gate.wait(60)
        seen.append(message.text)

    client.send(topic, "of the parent")
    client.start()
    await_that(lambda: client.stats(topic).counts.leased == 1)

    def closes() -> None:
        began_s = time.monotonic()
        assert not client.connected()
        client.close()
        assert time.monotonic() - began_s < 10

    def starts() -> None:
        client.start()
        await_that(client.connected)
        client.close()

    assert status_of(forked(closes)) == 0
    assert status_of(forked(starts)) == 0
    assert client.stats(topic).counts.leased == 1
    gate.set()
    await_that(lambda: seen)
    client.stop()
    assert seen == ["of the parent"]


def test_an_async_client_that_was_made_before_the_fork(
    two_brokers: tuple[str, str], topic: str
) -> None:
    """The process that uses it first has it; the broker takes no send for that of the other."""
    client = AsyncClient(two_brokers[0])

    async def sends() -> None:
        async with client:
            await asyncio.gather(*(client.send(topic, "x") for _ in range(5)))
            await client.send_many(topic, ["x"] * 5)

    children = [forked(lambda: asyncio.run(sends())) for _ in range(2)]
    asyncio.run(sends())
    assert [status_of(child) for child in children] == [0, 0]
    with Client(two_brokers[0]) as looking:
        assert looking.stats(topic).counts.ready == 30


def test_a_child_harms_no_async_client_of_its_parents_loop(
    two_brokers: tuple[str, str], topic: str
) -> None:
    """Its calls are refused, and its close leaves the connections to the parent."""

    async def child(client: AsyncClient) -> None:
        with pytest.raises(RuntimeError, match=OTHER_LOOP):
            await client.send(topic, "x", timeout=timedelta(seconds=30))
        with pytest.raises(RuntimeError, match=OTHER_LOOP):
            await client.receive(topic)
        await client.close(within=timedelta(seconds=5))

    def in_a_loop(client: AsyncClient) -> None:
        asyncio._set_running_loop(None)
        asyncio.run(asyncio.wait_for(child(client), 30))

    async def parent() -> None:
        async with AsyncClient(two_brokers[0]) as client:
            await client.send_many(topic, ["0", "1"])
            loop = client.subscribe(topic)
            first = await anext(loop)
            waiting = asyncio.ensure_future(
                client.receive(f"{topic}-2", wait=timedelta(seconds=20))
            )
            queued = client.send_soon(topic, "2", id="2")
            await asyncio.sleep(0.1)
            assert status_of(forked(lambda: in_a_loop(client))) == 0
            assert (await queued).id == "2"
            await client.send(f"{topic}-2", "x", timeout=timedelta(seconds=30))
            async with asyncio.timeout(30):
                assert [message.text for message in await waiting] == ["x"]
            assert await first.ack() == "done"
            assert await (await anext(loop)).ack() == "done"
            await loop.aclose()  # type: ignore[attr-defined]

    asyncio.run(parent())
