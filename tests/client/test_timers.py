"""Timers on clients and embedded brokers of both kinds: set, moved, fired or cancelled, once."""

from __future__ import annotations

import random
import time
from asyncio import sleep
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delaylog.client import Client
from tests.client.any_queue import Queue, got, on_a_queue
from tests.waiting import until

HOUR = timedelta(hours=1)


@on_a_queue
async def test_a_timer_fires_once_with_its_content(queue: Queue) -> None:
    timer = queue.client.timer("a", topic=queue.topic)
    assert await got(timer.state()) == "unset"
    due_ms = time.time() * 1_000 + 3_600_000
    sent = await got(timer.set(HOUR, json={"n": 1}))
    assert sent.deliver_at_ms == pytest.approx(due_ms, abs=60_000)
    assert await got(timer.state()) == "pending"
    assert (await got(timer.set(delay=timedelta(0), json={"n": 2}))).result == "replaced"
    (message,) = await queue.call("receive", wait=timedelta(seconds=5))
    assert (message.id, message.json()) == ("a", {"n": 2})
    assert await got(timer.state()) == "fired"
    await got(message.ack())
    for call in (timer.state, timer.cancel, timer.fire):
        assert await got(call()) == "fired"
    assert await got(timer.move(HOUR)) == "fired"
    assert await queue.call("receive") == []


@on_a_queue
async def test_a_timer_is_moved_fired_and_cancelled(queue: Queue) -> None:
    timer = queue.client.timer("a", topic=queue.topic)
    assert await got(timer.cancel()) == "unset"
    assert await got(timer.move(HOUR)) == "unset"
    await got(timer.set(timedelta(milliseconds=1_500)))
    assert await got(timer.move(at=datetime.now(UTC) + HOUR)) == "pending"
    assert await queue.call("receive", wait=timedelta(seconds=2)) == []
    assert await got(timer.fire()) == "pending"
    assert await got(timer.cancel()) == "cancelled"
    for call in (timer.state, timer.cancel, timer.fire):
        assert await got(call()) == "cancelled"
    assert await got(timer.move(HOUR)) == "cancelled"
    assert await queue.call("receive", wait=timedelta(milliseconds=50)) == []
    # A delay that is past is at once.
    await got(timer.set(delay=timedelta(-1), body="again"))
    (message,) = await queue.call("receive", wait=timedelta(seconds=5))
    assert message.text == "again"


@on_a_queue
async def test_a_timer_whose_handler_has_begun_has_fired(queue: Queue) -> None:
    """Also while it waits for its next attempt, since the first one may have done its work."""
    timer = queue.client.timer("a", topic=queue.topic)
    await got(timer.set(timedelta(0)))
    (message,) = await queue.call("receive", wait=timedelta(seconds=5))
    assert await got(timer.cancel()) == "fired"
    await got(message.nack(delay=timedelta(hours=1)))
    retry = await queue.call("get", "a")
    assert retry.state == "waiting"
    assert await got(timer.state()) == "fired"
    assert await got(timer.cancel()) == "fired"
    assert await got(timer.fire()) == "fired"
    assert (await queue.call("get", "a")).deliver_at_ms == retry.deliver_at_ms


@on_a_queue
async def test_a_message_that_was_returned_untried_can_be_cancelled(queue: Queue) -> None:
    timer = queue.client.timer("a", topic=queue.topic)
    await got(timer.set(timedelta(0)))
    (message,) = await queue.call("receive", wait=timedelta(seconds=5), begin=0)
    await got(message.release())
    assert await got(timer.cancel()) == "cancelled"


@on_a_queue
async def test_an_expired_timer_has_not_fired(queue: Queue) -> None:
    await queue.call("put_topic", {"ttl_ms": 1})
    timer = queue.client.timer("a", topic=queue.topic)
    await got(timer.set(timedelta(0)))
    await sleep(0.05)
    assert await queue.call("receive", wait=timedelta(milliseconds=100)) == []
    assert await got(timer.state()) == "expired"
    assert await got(timer.cancel()) == "expired"


@on_a_queue
async def test_who_cancels_and_who_handles_agree(queue: Queue) -> None:
    """Timers that fall due while they are cancelled: each is handled, or said to be cancelled."""
    handled: list[str] = []

    def handle(message: Any) -> None:
        handled.append(message.id)

    async def handle_soon(message: Any) -> None:
        handled.append(message.id)

    in_loop = hasattr(queue.client, "__aenter__")
    queue.client.consumer(queue.topic, wait=timedelta(milliseconds=200))(
        handle_soon if in_loop else handle
    )
    chance = random.Random(25)
    timers = [queue.client.timer(f"k{n}", topic=queue.topic) for n in range(60)]
    for timer in timers:
        await got(timer.set(timedelta(milliseconds=chance.randrange(100, 400))))
    await got(queue.client.start())
    outcomes: dict[str, str] = {}
    try:
        for timer in chance.sample(timers, 60):
            outcomes[timer.key] = await got(timer.cancel())
            await sleep(0.004)
        fired = [key for key, outcome in outcomes.items() if outcome == "fired"]
        await until(lambda: len(handled) >= len(fired))
    finally:
        await got(queue.client.stop())
    assert set(outcomes.values()) <= {"fired", "cancelled"}
    assert sorted(handled) == sorted(fired)
    for timer in timers:
        assert await got(timer.state()) == outcomes[timer.key]


def test_a_timer_has_a_key_and_one_time() -> None:
    with Client("http://127.0.0.1:9") as client:
        with pytest.raises(ValueError, match="a timer has a key"):
            client.timer("")
        timer = client.timer("order 17")
        assert repr(timer) == "<timer order 17 of topic timers>"
        with pytest.raises(TypeError, match="the delay is given twice"):
            timer.set(HOUR, delay=HOUR)
        with pytest.raises(TypeError, match="no argument 'id'"):
            timer.set(HOUR, id="x")  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="2 times are given"):
            timer.set(HOUR, deliver_at_ms=5)


def test_a_timer_without_a_time_is_not_due_now() -> None:
    """A setting that is absent is None: neither `set` nor `move` takes it for "at once"."""
    with Client("http://127.0.0.1:9") as client:
        timer = client.timer("order 17")
        for change in (timer.set, timer.move):
            absent: list[dict[str, Any]] = [
                {},
                {"delay": None},
                {"at": None, "deliver_at_ms": None},
            ]
            for fields in absent:
                with pytest.raises(
                    ValueError, match="give a time: a timedelta, at or deliver_at_ms"
                ):
                    change(**fields)
            with pytest.raises(ValueError, match=r"timedelta\(0\) is at once"):
                change(None)
