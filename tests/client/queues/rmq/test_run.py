"""RmqConsumer.run: handlers that return, raise, take too long, or are interrupted."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from delaylog.client.errors import NotReached
from delaylog.client.queues import PriorityMessage, RmqConsumer, RmqDelivery, RmqProducer


@pytest.fixture
def producer(client: Any) -> RmqProducer:
    return RmqProducer(client, "t")


@pytest.fixture
def consumer(client: Any) -> RmqConsumer:
    return RmqConsumer(client, "t")


def test_run_commits_rolls_back_and_gives_back(
    producer: RmqProducer, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    producer.send_many(PriorityMessage(f"b{n}", 100 - n) for n in range(6))
    consumer, stop = RmqConsumer(client, "t"), threading.Event()
    seen: list[tuple[str, int]] = []

    def handle(delivery: RmqDelivery) -> None:
        seen.append((delivery.body, delivery.attempt))
        if delivery.body == "b1" and delivery.attempt == 1:
            raise RuntimeError("not now")
        if len(seen) == 3:
            stop.set()

    assert consumer.run(handle, stop=stop, batch=6) == 2
    assert seen == [("b0", 1), ("b1", 1), ("b2", 1)]
    assert "not now" in caplog.text
    assert consumer.depth() == 4, "what had no turn was given back"
    stop.clear()
    assert (
        consumer.run(
            lambda each: (
                seen.append((each.body, each.attempt)) or (stop.set() if len(seen) == 7 else None)
            ),
            stop=stop,
            batch=2,
        )
        >= 3
    )
    assert {body for body, _ in seen} == {f"b{n}" for n in range(6)}


def test_a_message_of_another_program_becomes_a_dead_letter(
    producer: RmqProducer, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Sent over HTTP, say. It must neither end a consumer nor hold what came with it."""
    producer.send(PriorityMessage("own", 17))
    foreign = [client.send("t", "x", id=each).id for each in (None, "order 1", "1:2")]
    consumer, stop = RmqConsumer(client, "t"), threading.Event()
    assert consumer.run(lambda _: stop.set(), stop=stop, batch=9) == 1
    assert "topic t: 'order 1' is no id of an RMQ message" in caplog.text
    letters = {letter.id: letter.reason for letter in client.dead("t")}
    assert letters == dict.fromkeys(foreign, "this is no message of RMQ")
    assert list(consumer.dead_letters()) == consumer.prepare(9) == []


def test_own_messages_come_though_a_foreign_one_cannot_be_rejected(
    producer: RmqProducer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise NotReached("the broker is away")

    producer.send(PriorityMessage("own", 17))
    client.send("t", "x")
    monkeypatch.setattr(client, "reject", away)
    assert [each.body for each in RmqConsumer(client, "t").prepare(9)] == ["own"]


def test_run_leaves_alone_what_it_has_no_time_for(client: Any, clock: Any) -> None:
    """By the worker's own clock, since it cannot see the broker's."""
    RmqProducer(client, "t").send_many(PriorityMessage(f"b{n}", 100 - n) for n in range(2))
    consumer, stop = RmqConsumer(client, "t", timeout_s=1), threading.Event()
    seen: list[tuple[str, int]] = []

    def slow(delivery: RmqDelivery) -> None:
        seen.append((delivery.body, delivery.attempt))
        if len(seen) == 1:
            time.sleep(1.1)
            clock.advance(ms=1_100)
        else:
            stop.set()

    consumer.run(slow, stop=stop, batch=2, wait_ms=10)
    assert seen[0] == ("b0", 1)
    assert seen[1][1] == 2, "the second one was handed out again before it was handled"


def test_an_interrupted_handler_rolls_back(producer: RmqProducer, consumer: RmqConsumer) -> None:
    producer.send_many([PriorityMessage("a", 60), PriorityMessage("b", 50)])

    def interrupted(_delivery: RmqDelivery) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consumer.run(interrupted, batch=2)
    assert consumer.depth() == 2
