"""A message settles itself: by its methods, and at the end of a `with` block.

Each test runs on both clients at a live broker, and on both kinds of embedded broker.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from delaylog.client import AsyncClient, Client, ClientError, Reject, Retry, Settled
from tests.client.any_queue import Queue, entered, got, on_a_queue


@on_a_queue
async def test_each_method_settles_the_message(queue: Queue) -> None:
    message = await queue.take()
    assert not message.settled
    assert await got(message.release()) is Settled.DONE
    assert message.settled
    for settle in (queue.client.release, partial(queue.client.extend, lease=timedelta(0))):
        (message,) = await queue.call("receive", wait=timedelta(0))
        assert message.attempts == 1
        assert await got(settle(message)) == ["done"]
    (message,) = await queue.call("receive", begin=0)
    assert await got(queue.client.begin([message], lease=timedelta(seconds=60))) == ["done"]
    assert await got(message.begin(lease=timedelta(minutes=1))) is Settled.DONE
    assert await got(message.nack(delay=timedelta(0))) is Settled.DONE
    (message,) = await queue.call("receive", lease=timedelta(minutes=1))
    assert message.attempts == 2
    assert await got(message.extend(lease=timedelta(minutes=5))) is Settled.DONE
    assert not message.settled
    assert (await queue.call("get", "a")).lease_until_ms > message.lease_until_ms + 100_000
    assert await got(message.nack(delay=timedelta(0))) is Settled.DONE
    (message,) = await queue.call("receive")
    assert await got(message.ack()) is Settled.DONE
    assert await queue.state() == "acked"
    assert await got(message.ack()) is Settled.GONE
    assert not message.lease_lost


@on_a_queue
async def test_durations_are_checked(queue: Queue) -> None:
    message = await queue.take()
    for wrong, kind, says in (
        ({"lease": timedelta(1), "lease_ms": 5}, TypeError, "extend has no argument 'lease_ms'"),
        ({}, TypeError, "missing .* 'lease'"),
        ({"lease": 5}, TypeError, "lease is a timedelta, not int"),
        ({"lease": timedelta(-5)}, ValueError, "lease is not negative: -5 days"),
    ):
        with pytest.raises(kind, match=says):
            await got(message.extend(**wrong))
        with pytest.raises(kind, match=says):
            await got(queue.client.extend(message, **wrong))
    with pytest.raises(TypeError, match="nack has no argument 'delay_ms': write delay=timedelta"):
        await got(queue.client.nack(message, delay_ms=1))
    with pytest.raises(TypeError, match="receive has no argument 'wait_ms': write wait=timedelta"):
        await queue.call("receive", wait_ms=1)
    with pytest.raises(TypeError, match="no argument 'ttl_ms': write ttl=timedelta"):
        await queue.call("send", "x", ttl_ms=1)
    with pytest.raises(TypeError, match="no argument 'delay_ms': write delay=timedelta"):
        await queue.call("send", "x", delay_ms=1)


@on_a_queue
async def test_a_block_acks_at_its_end(queue: Queue) -> None:
    message = await queue.take()
    await queue.block(message)
    assert await queue.state() == "acked"
    assert message.settled


@on_a_queue
async def test_a_block_that_fails_nacks(queue: Queue) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        await queue.block(await queue.take(), fail)
    info = await queue.call("get", "a")
    assert (info.state, info.attempts) == ("waiting", 1)


@on_a_queue
async def test_a_block_decides_by_retry_and_reject(queue: Queue) -> None:
    """They end the block and go no further."""

    def again(_: Any) -> None:
        raise Retry(delay=timedelta(0))

    def never(_: Any) -> None:
        raise Reject("the address does not exist")

    await queue.block(await queue.take(), again)
    (message,) = await queue.call("receive")
    assert message.attempts == 2
    await queue.block(message, never)
    assert await queue.state() == "dead"


@on_a_queue
async def test_a_block_leaves_a_settled_message_alone(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.block(await queue.take(), lambda message: message.reject())
    assert await queue.state() == "dead"
    assert caplog.records == []


@on_a_queue
async def test_a_block_leaves_a_message_alone_that_the_client_settled(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.block(await queue.take(), queue.client.reject)
    assert await queue.state() == "dead"
    assert caplog.records == []


@on_a_queue
async def test_a_block_says_that_its_lease_was_over(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    message = await queue.take()
    await queue.call("settle_ids", "extend", ["a"], lease=timedelta(0))
    with caplog.at_level(logging.WARNING):
        await queue.block(message)
    assert message.lease_lost
    assert "the lease of message a ended before its ack" in caplog.text


METHODS: dict[str, Callable[[Any], Any]] = {
    "ack": lambda message: message.ack(),
    "nack": lambda message: message.nack(delay=timedelta(0)),
    "reject": lambda message: message.reject("a reason"),
    "extend": lambda message: message.extend(lease=timedelta(seconds=5)),
    "begin": lambda message: message.begin(),
}


@pytest.mark.parametrize("method", METHODS)
@on_a_queue
async def test_each_method_says_that_the_lease_was_over(
    queue: Queue, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    """By its result, by `lease_lost` and in the log, once, because many callers read no result."""
    message = await queue.take()
    await queue.call("settle_ids", "extend", ["a"], lease=timedelta(0))
    with caplog.at_level(logging.WARNING):
        await queue.block(message, METHODS[method])
        assert await got(METHODS[method](message)) is Settled.GONE
    assert message.lease_lost
    assert not message.settled
    (line,) = caplog.messages
    assert line == (
        f"{queue.topic}: the lease of message a ended before its {method}: it is delivered again"
    )
    assert (await queue.call("get", "a")).state == "ready"


async def test_the_error_of_a_block_is_more_than_that_of_its_nack(
    two_brokers: tuple[str, str], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(two_brokers[0]) as client:
        client.send(topic, "x", id="a")
        (message,) = client.receive(topic)
    with pytest.raises(RuntimeError, match="boom"), message:
        raise RuntimeError("boom")
    assert "cannot return message a" in caplog.text
    assert not message.settled


async def test_a_failed_call_leaves_the_message_unsettled(
    two_brokers: tuple[str, str], topic: str
) -> None:
    async with AsyncClient(two_brokers[0]) as client:
        await client.send(topic, "x")
        (message,) = await client.receive(topic)
    with pytest.raises(ClientError):
        await message.ack()
    assert not message.settled


async def test_a_dropped_message_frees_its_batch_without_the_garbage_collector(
    two_brokers: tuple[str, str],
    topic: str,
) -> None:
    async with AsyncClient(two_brokers[0]) as client:
        await client.send(topic, "x")
        (message,) = await client.receive(topic)
        batch = weakref.ref(message.batch.columns)
        await message.ack()
        gc.disable()
        try:
            del message
            await asyncio.sleep(0)
            assert batch() is None
        finally:
            gc.enable()


@on_a_queue
async def test_a_send_with_the_id_that_is_being_handled_says_that_it_changed_nothing(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    async with entered(await queue.take()):
        assert (await queue.call("send", "y", id="a")).result == "kept"
        assert (await queue.call("send_many", ["y"], id="a"))[0].result == "kept"
        await queue.call("send", "y", id="b")
    warnings = [line for line in caplog.messages if "being handled" in line]
    assert len(warnings) == 2
    assert warnings[0].startswith(f"{queue.topic}: a send with the id 'a'")
    assert "merge='replace'" in warnings[0]
    await queue.call("send", "y", id="a")
    assert len(caplog.records) == 2, "it is not handled any more"


@on_a_queue
async def test_the_next_run_of_a_job_replaces_the_message_that_is_being_handled(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    message = await queue.take()
    again = await queue.call("send", "y", id="a", merge="replace", delay=timedelta(0))
    assert again.result != "kept"
    await got(message.ack())
    (message,) = await queue.call("receive", wait=timedelta(seconds=5))
    assert (message.text, message.attempts) == ("y", 1)
    assert caplog.messages == []
