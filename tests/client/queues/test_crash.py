"""Both recipes while the broker is killed with -9 and started again.

Method: producers and consumers work on through kills, each call repeated while the broker is away.
What was answered before a kill is there after it; what was said to be committed never comes
again; nothing comes early.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from delaylog.client import Client
from delaylog.client.errors import AnswerLost, NotReached, NotReady
from delaylog.client.models import Settled
from delaylog.client.queues import (
    DynoMessage,
    DynoQueue,
    FixedTimeMessage,
    PriorityMessage,
    RangeMergeMessage,
    RmqConsumer,
    RmqDelivery,
    RmqMessage,
    RmqProducer,
    TopicKind,
)
from tests.broker.conftest import Broker

T = TypeVar("T")
BODIES = 120
KILLS = 2


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def patiently(call: Callable[[], T]) -> T:
    """Repeat a call while the broker is away."""
    while True:
        try:
            return call()
        except (NotReached, AnswerLost, NotReady):
            time.sleep(0.02)


def left(client: Client, topic: str) -> int:
    """How many messages live."""
    counts = client.stats(topic).counts
    return counts.waiting + counts.ready + counts.leased


def range_merge(body: str) -> RmqMessage:
    return RangeMergeMessage(body, 150)


def priority(body: str) -> RmqMessage:
    return PriorityMessage(body, 17 + len(body))


def fixed_time(body: str) -> RmqMessage:
    return FixedTimeMessage(body, now_ms() + 150)


@pytest.mark.parametrize("make", [range_merge, priority, fixed_time])
def test_rmq(
    broker: Broker, in_threads: Callable[..., None], make: Callable[[str], RmqMessage]
) -> None:
    client = Client(broker.url)
    producer = RmqProducer(client, "t", TopicKind.of(make("b")), slots=4)
    handled: set[str] = set()
    ended: dict[int, int] = {}
    early: list[RmqDelivery] = []
    again: list[RmqDelivery] = []
    guard = threading.Lock()
    sent: list[str] = []

    def produce() -> None:
        for n in range(BODIES):
            patiently(lambda n=n: producer.send(make(f"b{n}")))
            sent.append(f"b{n}")

    def consume() -> None:
        consumer = RmqConsumer(client, "t", timeout_s=1)
        while len(sent) < BODIES or patiently(lambda: left(client, "t")):
            for delivery in patiently(lambda: consumer.prepare(4, wait_ms=50)):
                with guard:
                    handled.add(delivery.body)
                    # One that was in hand for too long may have been committed by another.
                    if delivery.attempt > ended.get(delivery.message.ref, delivery.attempt):
                        again.append(delivery)
                    if now_ms() < delivery.message.deliver_at_ms:
                        early.append(delivery)
                if patiently(lambda d=delivery: consumer.commit(d)) is Settled.DONE:
                    with guard:
                        ended[delivery.message.ref] = delivery.attempt

    def kill() -> None:
        for round_ in range(1, KILLS + 1):
            while len(sent) < BODIES * round_ // (KILLS + 1):
                time.sleep(0.005)
            broker.crash()
            broker.start()

    in_threads(produce, consume, consume, kill)
    assert handled == {f"b{n}" for n in range(BODIES)}
    assert early == []
    assert [(each.body, each.attempt, each.message.lease) for each in again] == []
    assert list(RmqConsumer(client, "t").dead_letters()) == []
    client.close()


def test_a_change_during_the_work_outlives_a_kill(broker: Broker) -> None:
    """The delivery in work, its lease, and the change that waits behind it are all there again."""
    client = Client(broker.url)
    producer, consumer = RmqProducer(client, "t"), RmqConsumer(client, "t")
    producer.send(PriorityMessage("b", 20))
    [first] = consumer.prepare(wait_ms=10_000)
    producer.send(PriorityMessage("b", 30))
    broker.crash()
    broker.start()
    assert patiently(lambda: consumer.prepare(wait_ms=100)) == []
    assert consumer.commit(first) is Settled.DONE
    [second] = consumer.prepare(wait_ms=10_000)
    assert (second.attempt, second.message.priority) == (1, 30)
    client.close()


def test_run_goes_on_when_the_broker_comes_back(
    broker: Broker, in_threads: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(broker.url)
    RmqProducer(client, "t").send(FixedTimeMessage("b", now_ms() + 300))
    stop, seen = threading.Event(), []

    def handle(delivery: RmqDelivery) -> None:
        seen.append(delivery.body)
        stop.set()

    broker.crash()

    def restart() -> None:
        while "no messages of t for now" not in caplog.text:
            time.sleep(0.01)
        broker.start()

    in_threads(lambda: RmqConsumer(client, "t").run(handle, stop=stop, wait_ms=100), restart)
    assert seen == ["b"]
    client.close()


def test_dyno(broker: Broker, in_threads: Callable[..., None]) -> None:
    client = Client(broker.url)
    queue = DynoQueue(client, "q", unack_ms=1_000)
    count = 300
    handled: set[str] = set()
    guard = threading.Lock()
    pushed: list[str] = []

    def produce() -> None:
        for n in range(0, count, 10):
            messages = [DynoMessage(f"m{k}", timeout_ms=k % 50) for k in range(n, n + 10)]
            pushed.extend(patiently(lambda m=messages: queue.push(m)))

    def consume() -> None:
        while len(pushed) < count or patiently(lambda: left(client, "q")):
            for message in patiently(lambda: queue.pop(20, wait_ms=20)):
                with guard:
                    handled.add(message.id)
                patiently(lambda m=message: queue.ack(m.id))

    def kill() -> None:
        for round_ in range(1, KILLS + 1):
            while len(pushed) < count * round_ // (KILLS + 1):
                time.sleep(0.005)
            broker.crash()
            broker.start()

    in_threads(produce, consume, consume, kill)
    assert handled == {f"m{n}" for n in range(count)}
    assert client.stats("q").counts.acked == count
    client.close()
