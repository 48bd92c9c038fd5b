"""The recipes on an embedded broker under a clock that the test moves: weeks in a moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import delaylog
from delaylog.broker.embedded import EmbeddedBroker, ManualClock
from delaylog.client.models import Settled
from delaylog.client.queues import (
    DynoMessage,
    DynoQueue,
    FixedTimeMessage,
    PriorityMessage,
    RangeMergeMessage,
    RmqConsumer,
    RmqProducer,
    RolledBack,
)

DAY_MS = 86_400_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker[ManualClock]]:
    with delaylog.open(tmp_path / "data", clock=ManualClock(), fsync="never") as broker:
        yield broker


def test_rmq_at_its_millisecond(broker: EmbeddedBroker[ManualClock]) -> None:
    clock = broker.clock
    producer, consumer = RmqProducer(broker, "t"), RmqConsumer(broker, "t", timeout_s=60)
    assert producer.send(RangeMergeMessage("b", 30 * DAY_MS))
    clock.advance(days=20)
    assert not producer.send(RangeMergeMessage("b", 1)), "the first time stays"
    clock.advance(days=10, ms=-1)
    assert consumer.prepare() == []
    clock.advance(ms=1)
    [delivery] = consumer.prepare()
    assert producer.send(RangeMergeMessage("b", 5))
    clock.advance(ms=59_999)
    assert consumer.prepare() == [], "the first one is in work"
    clock.advance(ms=1)
    [again] = consumer.prepare()
    assert (again.attempt, again.message.ref) == (2, delivery.message.ref)
    assert consumer.commit(delivery) is Settled.GONE
    assert consumer.commit(again) is Settled.DONE
    [changed] = consumer.prepare()
    assert changed.attempt == 1


def test_rmq_moves_a_fixed_time(broker: EmbeddedBroker[ManualClock]) -> None:
    clock = broker.clock
    producer, consumer = RmqProducer(broker, "t"), RmqConsumer(broker, "t")
    start = clock.now_ms()
    producer.send(FixedTimeMessage("b", start + DAY_MS))
    producer.send(FixedTimeMessage("b", start + 7 * DAY_MS))
    clock.advance(days=7, ms=-1)
    assert consumer.prepare() == []
    clock.advance(ms=1)
    [delivery] = consumer.prepare()
    assert delivery.message.deliver_at_ms == start + 7 * DAY_MS
    producer.send(FixedTimeMessage("past", start))
    [late] = consumer.prepare()
    assert late.message.deliver_at_ms == clock.now_ms(), "a past time means now"


def test_rmq_rolls_back_what_is_not_settled_until_it_is_dead(
    broker: EmbeddedBroker[ManualClock],
) -> None:
    producer, consumer = RmqProducer(broker, "t"), RmqConsumer(broker, "t", timeout_s=3_600)
    producer.send(PriorityMessage("b", 17))
    for attempt in range(1, 18):
        [delivery] = consumer.prepare()
        assert delivery.attempt == attempt
        broker.clock.advance(hours=1)
    assert consumer.roll_back(delivery) is RolledBack.GONE
    assert consumer.prepare() == []
    [letter] = consumer.dead_letters()
    assert letter.died_at_ms == broker.clock.now_ms()
    broker.clock.advance(days=6)
    consumer.replay([letter], delay_ms=DAY_MS)
    assert consumer.prepare() == []
    broker.clock.advance(days=1)
    [delivery] = consumer.prepare()
    assert delivery.attempt == 1


def test_dyno(broker: EmbeddedBroker[ManualClock]) -> None:
    clock = broker.clock
    with DynoQueue(broker, "q", shards=["a", "b"], unack_ms=60_000) as queue:
        queue.push(
            [DynoMessage(str(n), f"p{n}", timeout_ms=DAY_MS, priority=9 - n) for n in range(8)]
        )
        clock.advance(days=1, ms=-1)
        assert queue.pop(8) == queue.unsafe_peek_all_shards(8) == []
        clock.advance(ms=1)
        assert [m.id for m in queue.peek(8)] == ["7", "5", "3", "1"], "the lowest goes first"
        assert [m.priority for m in queue.pop(4)] == [2, 4, 6, 8]
        clock.advance(ms=30_000)
        assert queue.set_unack_timeout("7", 90_000)
        clock.advance(ms=29_999)
        assert queue.shard_sizes()["a"] == {"size": 0, "uacked": 4}
        clock.advance(ms=1)
        assert queue.shard_sizes()["a"] == {"size": 3, "uacked": 1}
        assert [m.id for m in queue.unsafe_pop_all_shards(9)] == ["5", "3", "1", "6", "4", "2", "0"]
        assert all(queue.ack(str(n)) for n in range(8))
        assert queue.get_all_messages() == []


def test_a_pop_that_waits_ends_though_the_clock_stands(
    broker: EmbeddedBroker[ManualClock],
) -> None:
    """Its wait is real time, so a program that is tried out under such a clock does not hang."""
    queue = DynoQueue(broker, "q", shards=["a", "b"])
    queue.push([DynoMessage("x", timeout_ms=DAY_MS)])
    assert queue.pop(1, wait_ms=30) == []
    assert queue.unsafe_pop_all_shards(1, wait_ms=30) == []
    taken = queue.unsafe_pop_with_msg_id_all_shards("x")
    assert taken == DynoMessage("x")
