"""The loop over a topic: what it yields, keeps under lease, releases and survives."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from datetime import timedelta
from typing import Any

import pytest

from delaylog.client import AsyncClient, Client, NotFound, NotReached
from delaylog.client._async.subscriptions import AsyncSubscribing
from tests.client.any_queue import Queue, got, looped, on_a_queue


def ack(message: Any) -> Any:
    return message.ack()


async def await_counts(queue: Queue, **wanted: int) -> None:
    """Until the counts are these: a loop of asyncio ends in a turn after its `break`."""
    for _ in range(2_000):
        counts = (await queue.call("stats")).counts
        if all(getattr(counts, name) == n for name, n in wanted.items()):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(counts)


@on_a_queue
async def test_a_loop_that_is_left_releases_what_it_has_not_yielded(queue: Queue) -> None:
    await queue.call("send_many", ["a", "b", "c", "d"])
    seen = await looped(queue, 2, ack)
    assert [message.text for message in seen] == ["a", "b"]
    await await_counts(queue, acked=2, ready=2, leased=0)
    rest = await queue.call("receive", max=9)
    assert [(message.text, message.attempts) for message in rest] == [("c", 1), ("d", 1)]


@on_a_queue
async def test_messages_keep_their_leases_while_others_are_handled(queue: Queue) -> None:
    await queue.call("send_many", ["a", "b", "c"])

    def handle(message: Any) -> Any:
        if message.text != "c":
            # Twice more than half of the lease: "c" outlives the lease of its receive.
            time.sleep(2.1)
        return message.ack()

    seen = await looped(queue, 3, handle, lease=timedelta(seconds=4))
    assert [(message.text, message.attempts) for message in seen] == [
        (text, 1) for text in ("a", "b", "c")
    ]
    await await_counts(queue, acked=3)


@on_a_queue
async def test_a_message_whose_lease_has_ended_is_not_yielded(queue: Queue) -> None:
    await queue.call("put_topic", {"backoff": {"first_ms": 0}})
    await queue.call("send_many", ["a", "b"])

    def handle(message: Any) -> Any:
        if message.text == "a":
            time.sleep(1.6)
        return message.ack()

    seen = await looped(queue, 2, handle, lease=timedelta(seconds=1))
    assert seen[0].text == "a"
    assert seen[1].attempts == 2


@on_a_queue
async def test_messages_are_filtered(queue: Queue) -> None:
    await queue.call("send", "a", tags=["x"])
    await queue.call("send", "b", tags=["y"])
    (message,) = await looped(queue, 1, ack, tags=["y"], max=1)
    assert message.text == "b"


@on_a_queue
async def test_wrong_arguments_are_refused_at_once(queue: Queue) -> None:
    with pytest.raises(TypeError, match="subscribe has no argument 'ids'"):
        queue.client.subscribe(queue.topic, ids=["a"])
    with pytest.raises(ValueError, match="a topic is named"):
        queue.client.subscribe("a b")


@on_a_queue
async def test_a_missing_group_ends_the_loop(queue: Queue) -> None:
    with pytest.raises(NotFound, match="there is no group 'g'"):
        await looped(queue, 1, group="g")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
async def test_close_ends_the_loop_and_releases(
    kind: Any, two_brokers: tuple[str, str], topic: str
) -> None:
    client = kind(two_brokers[0])
    await got(client.send_many(topic, ["a", "b", "c"]))
    loop = client.subscribe(topic)
    first = await anext(loop) if kind is AsyncClient else next(loop)
    await got(client.close())
    with Client(two_brokers[0]) as other:
        counts = other.stats(topic).counts
        assert (counts.leased, counts.ready) == (1, 2)
        assert other.ack(first) == ["done"]
    rest = [each async for each in loop] if inspect.isasyncgen(loop) else list(loop)
    assert rest == []


async def test_an_outage_is_waited_for_and_logged(
    two_brokers: tuple[str, str],
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with AsyncClient(two_brokers[0]) as client:
        receive, failures = client.receive, [NotReached("away")]

        async def first_away(*given: Any, **asked: Any) -> Any:
            if failures:
                raise failures.pop()
            return await receive(*given, **asked)

        monkeypatch.setattr(AsyncClient, "_deliveries", AsyncSubscribing._deliveries)
        monkeypatch.setattr(client, "receive", first_away)
        await client.send(topic, "x")
        async for message in client.subscribe(topic):
            await message.ack()
            break
    assert [line for line in caplog.messages if "subscription" in line] == [
        f"subscription of {topic}: cannot receive from the broker: away",
        f"subscription of {topic}: connected to the broker again, after 1 failed calls",
    ]


@on_a_queue
async def test_the_attempt_begins_when_the_message_is_yielded(queue: Queue) -> None:
    """That of the first one begins with the receive of a long poll."""
    for name in ("a", "b", "c"):
        await queue.call("send", "x", id=name)
    await await_counts(queue, ready=3)
    await looped(queue, 2, ack)
    await await_counts(queue, acked=2, ready=1)
    life = {
        name: [step["event"] for step in (await queue.call("get", name, life=True)).life]
        for name in ("a", "b", "c")
    }
    streamed = isinstance(queue.client, AsyncClient)
    begun = ["a", "b"] if streamed else ["b"]
    assert [name for name, events in life.items() if "begun" in events] == begun
    assert "nacked" in life["c"], "released"


@on_a_queue
async def test_each_further_attempt_counts_too(queue: Queue) -> None:
    """That of a message which comes first in its receive, and is left to the end of its lease."""
    await queue.call("put_topic", {"backoff": {"first_ms": 0}})
    await queue.call("send", "a")
    for number in (1, 2, 3):
        (message,) = await looped(queue, 1, lease=timedelta(seconds=1))
        assert message.attempts == number
