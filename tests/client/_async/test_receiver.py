"""AsyncReceiver: what one receive leaves is the next one's, whoever else receives meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from delaylog.client._async.receiver import AsyncReceiver
from delaylog.client.message import LeasedMessage
from delaylog.client.shards.receives import Wanted
from delaylog.client.shards.sharding import ByKey, Topology
from tests.client.rows import received
from tests.waiting import until

WANTED = Wanted("t", None, (), "any", False, ())


class Shard:
    """A link whose receives are answered when the test says so; it notes what is given back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[asyncio.Future[list[LeasedMessage]]] = []
        self.given_back = 0

    async def receive(self, wanted: Wanted, **_: Any) -> list[LeasedMessage]:
        answer: asyncio.Future[list[LeasedMessage]] = asyncio.get_running_loop().create_future()
        self.asked.append(answer)
        return await answer

    async def give_back(self, messages: list[LeasedMessage]) -> None:
        self.given_back += len(messages)


def receiver_of(*names: str) -> tuple[AsyncReceiver, list[Shard]]:
    topology = Topology(tuple(f"http://{name}:1" for name in names), ByKey(), None)
    shards = [Shard(shard.name) for shard in topology.shards]
    return AsyncReceiver(cast(Any, shards), topology), shards


async def test_what_receives_at_once_leave_is_there_for_the_next() -> None:
    """One that ends with nothing does not hide what the other one has leased."""
    receiver, (one, other) = receiver_of("a", "b")

    async def receive(max: int, wait_ms: int) -> list[LeasedMessage]:
        return await receiver.receive(WANTED, max=max, wait_ms=wait_ms, lease_ms=None)

    short = asyncio.create_task(receive(1, 0))
    await until(lambda: len(one.asked) + len(other.asked) == 1)
    long = asyncio.create_task(receive(1, 5_000))
    await until(lambda: len(one.asked) + len(other.asked) == 3)
    first, second = (one, other) if len(one.asked) == 2 else (other, one)
    # The short one finds nothing anywhere and leaves nothing.
    first.asked[0].set_result([])
    await until(lambda: len(second.asked) == 2)
    for asked in second.asked[1:]:
        asked.set_result([])
    assert await short == []
    # The long one takes one of three, and leaves two and a poll.
    first.asked[1].set_result(received(range(3), shard=first.name))
    assert len(await long) == 1
    assert len(await receive(5, 5_000)) == 2
    await receiver.close()
    assert first.given_back == 0


async def test_what_a_cancelled_receive_has_leased_is_given_back() -> None:
    """It had asked the first shard, and waits for the second."""
    receiver, shards = receiver_of("a", "b")
    task = asyncio.create_task(receiver.receive(WANTED, max=5, wait_ms=0, lease_ms=None))
    await until(lambda: any(shard.asked for shard in shards))
    first = next(shard for shard in shards if shard.asked)
    second = next(shard for shard in shards if shard is not first)
    first.asked[0].set_result(received(range(3), shard=first.name))
    await until(lambda: bool(second.asked))
    task.cancel()
    await asyncio.wait([task])
    await receiver.close()
    assert task.cancelled()
    assert first.given_back == 3


async def test_what_came_before_a_close_is_given_back() -> None:
    """Also if its poll had no turn yet, and if it comes while the client is being closed."""
    receiver, (one, other) = receiver_of("a", "b")
    task = asyncio.create_task(receiver.receive(WANTED, max=1, wait_ms=5_000, lease_ms=None))
    await until(lambda: len(one.asked) == len(other.asked) == 1)
    one.asked[0].set_result(received(range(1), shard=one.name))
    assert len(await task) == 1
    other.asked[0].set_result(received(range(3), shard=other.name))
    await receiver.close()
    assert (one.given_back, other.given_back) == (0, 3)

    task = asyncio.create_task(receiver.receive(WANTED, max=1, wait_ms=5_000, lease_ms=None))
    await until(lambda: len(one.asked) == len(other.asked) == 2)
    one.asked[1].set_result(received(range(1), shard=one.name))
    assert len(await task) == 1
    closing = asyncio.create_task(receiver.close())
    await asyncio.sleep(0.01)
    other.asked[1].set_result(received(range(2), shard=other.name))
    await closing
    assert other.given_back == 5


async def test_a_poll_that_is_not_answered_does_not_hold_up_a_close() -> None:
    receiver, (one, other) = receiver_of("a", "b")
    task = asyncio.create_task(receiver.receive(WANTED, max=1, wait_ms=5_000, lease_ms=None))
    await until(lambda: len(one.asked) == len(other.asked) == 1)
    one.asked[0].set_result(received(range(1), shard=one.name))
    await task
    await receiver.close()
    assert other.asked[0].cancelled()


async def test_a_poll_that_fails_unexpectedly_does_not_keep_a_close_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    receiver, (one, other) = receiver_of("a", "b")
    tasks = [
        asyncio.create_task(receiver.receive(WANTED, max=1, wait_ms=5_000, lease_ms=None))
        for _ in range(2)
    ]
    await until(lambda: len(one.asked) == len(other.asked) == 2)
    other.asked[0].set_result(received(range(1), shard=other.name))
    other.asked[1].set_result(received(range(3), shard=other.name))
    await asyncio.gather(*tasks)
    one.asked[0].set_exception(ZeroDivisionError())
    await receiver.close()
    assert other.given_back == 2
    assert "a poll of t failed" in caplog.text
