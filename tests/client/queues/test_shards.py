"""The recipes on a client of two brokers: what a body or an id promises holds over both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delaylog.client import Client
from delaylog.client.models import Settled
from delaylog.client.queues import (
    DynoMessage,
    DynoQueue,
    PriorityMessage,
    RmqConsumer,
    RmqDelivery,
    RmqProducer,
    RolledBack,
)


@pytest.fixture(scope="module")
def both(two_brokers: tuple[str, str]) -> Iterator[Client]:
    with Client(*two_brokers) as client:
        yield client


def all_of(consumer: RmqConsumer, count: int) -> list[RmqDelivery]:
    found: list[RmqDelivery] = []
    while len(found) < count:
        found += consumer.prepare(count - len(found), wait_ms=10_000)
    return found


def test_rmq(both: Client, topic: str) -> None:
    producer, consumer = RmqProducer(both, topic, slots=4), RmqConsumer(both, topic)
    bodies = {f"b{n}" for n in range(40)}
    for _ in range(3):
        producer.send_many(PriorityMessage(body, 20) for body in sorted(bodies))
    assert consumer.depth() == 40
    apart = [both.broker(shard.name).stats(topic)["counts"]["ready"] for shard in both.shards]
    assert all(apart)
    assert sum(apart) == 40
    deliveries = all_of(consumer, 40)
    assert {delivery.body for delivery in deliveries} == bodies
    failed = deliveries.pop()
    assert all(consumer.commit(delivery) is Settled.DONE for delivery in deliveries)
    while consumer.roll_back(failed) is not RolledBack.DEAD:
        [failed] = all_of(consumer, 1)
    [letter] = consumer.dead_letters()
    assert letter.body == failed.body
    assert [changed.result for changed in consumer.replay([letter])] == ["done"]
    assert consumer.commit(all_of(consumer, 1)[0]) is Settled.DONE
    assert consumer.depth() == 0


def test_messages_of_one_basis_are_in_one_place(both: Client, topic: str) -> None:
    producer, consumer = RmqProducer(both, topic), RmqConsumer(both, topic)
    producer.send_many(PriorityMessage(f"b{n}", 90 - n, slot_basis="s") for n in range(6))
    for n in range(6):
        [delivery] = all_of(consumer, 1)
        assert delivery.body == f"b{n}"
        assert consumer.prepare(6) == []
        consumer.commit(delivery)


def test_dyno(both: Client, topic: str) -> None:
    queue, other = DynoQueue(both, topic), DynoQueue(both, topic)
    ids = [f"m{n}" for n in range(40)]
    for _ in range(2):
        queue.push([DynoMessage(each, timeout_ms=3_600_000) for each in ids])
    assert queue.size() == 40
    assert queue.set_timeout("m0", 0)
    assert queue.remove("m1")
    assert not queue.remove("m1")
    assert not queue.ensure(DynoMessage("m2"))
    assert queue.ensure(DynoMessage("m1", timeout_ms=3_600_000))
    taken = [queue.pop_with_msg_id(each) for each in ids]
    assert [message.id for message in taken if message] == ids
    assert other.set_unack_timeout("m3", 120_000)
    assert all(other.ack(each) for each in ids[:20])
    assert queue.ack_all([DynoMessage(each) for each in ids]) == 20
    assert queue.get_all_messages() == []


def test_a_client_for_each_shard(two_brokers: tuple[str, str], topic: str) -> None:
    with Client(two_brokers[0]) as here, Client(two_brokers[1]) as there:
        queue = DynoQueue({"a": here, "b": there}, topic, own_shard="b")
        queue.push([DynoMessage(str(n)) for n in range(4)])
        assert queue.shard_sizes() == {
            "a": {"size": 2, "uacked": 0},
            "b": {"size": 2, "uacked": 0},
        }
        assert [m.id for m in queue.pop(2, wait_ms=10_000)] == ["0", "2"]
        assert [m.id for m in queue.unsafe_pop_all_shards(2, wait_ms=10_000)] == ["1", "3"]
        assert all(queue.ack(str(n)) for n in range(4))
