"""RMQ's promises: slots, merging, order, two-phase consumption, retries, the dead, and `run`.

Method: an embedded broker under a clock that the test moves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any
from zlib import crc32

import pytest

from delaylog.client.errors import NotReached
from delaylog.client.models import Settled
from delaylog.client.queues import (
    FixedTimeMessage,
    PriorityMessage,
    RangeMergeMessage,
    RmqConsumer,
    RmqDelivery,
    RmqMessage,
    RmqProducer,
    RolledBack,
    TopicKind,
    TopicMismatch,
)

DAY_MS = 86_400_000
PAST_MS = 10**12
"""2001-09-09: an earlier due time is refused, as one in seconds."""
LEASE_STEP_MS = 50
"""Leases end on multiples of this."""


def one(consumer: RmqConsumer) -> RmqDelivery:
    [delivery] = consumer.prepare()
    return delivery


@pytest.fixture
def producer(client: Any) -> RmqProducer:
    return RmqProducer(client, "t")


@pytest.fixture
def consumer(client: Any) -> RmqConsumer:
    return RmqConsumer(client, "t")


def test_a_slot_is_the_common_crc32_of_basis_or_body(
    producer: RmqProducer, consumer: RmqConsumer
) -> None:
    assert crc32(b"123456789") == 0xCBF43926
    assert producer.slot_of(PriorityMessage("123456789", 17)) == 0xCBF43926 % 8
    assert producer.slot_of(PriorityMessage("any", 17, slot_basis="123456789")) == 6
    bodies = [f"b{n}" for n in range(50)]
    assert producer.send_many(PriorityMessage(body, 17) for body in bodies) == [True] * 50
    assert consumer.depth() == 50
    deliveries = consumer.prepare(50)
    assert {d.body: d.slot for d in deliveries} == {b: crc32(b.encode()) % 8 for b in bodies}


def test_equal_bodies_of_two_slots_are_two_messages(
    producer: RmqProducer, consumer: RmqConsumer
) -> None:
    """The slot is part of a message's identity, as it is of the original's keys."""
    for basis in ("a", "b", "a"):
        producer.send(PriorityMessage("same", 20, slot_basis=basis))
    deliveries = consumer.prepare(10)
    assert [delivery.body for delivery in deliveries] == ["same", "same"]
    assert {d.slot for d in deliveries} == {crc32(b"a") % 8, crc32(b"b") % 8}


@pytest.mark.parametrize(
    "body", ["", "é∞", "a\nb\x00c", "~tilde", "long " * 100, "\x7f", "x" * 300_000]
)
def test_any_body_is_a_message(producer: RmqProducer, consumer: RmqConsumer, body: str) -> None:
    assert producer.send(PriorityMessage(body, 17))
    assert not producer.send(PriorityMessage(body, 18))
    delivery = one(consumer)
    assert delivery.body == body
    assert consumer.commit(delivery) is Settled.DONE
    assert consumer.depth() == 0


def test_long_bodies_that_begin_alike_do_not_merge(
    producer: RmqProducer, consumer: RmqConsumer
) -> None:
    bodies = {f"{'x' * 400}{n}" for n in range(20)}
    assert all(producer.send(PriorityMessage(body, 17, slot_basis="s")) for body in bodies)
    found = set()
    while deliveries := consumer.prepare():
        found |= {delivery.body for delivery in deliveries}
        consumer.commit(deliveries[0])
    assert found == bodies


def test_what_makes_no_sense_is_refused(client: Any) -> None:
    for slots in (0, -4, 3, 12, 1 << 15):
        with pytest.raises(ValueError, match="power of two"):
            RmqProducer(client, "t", slots=slots)
    assert RmqProducer(client, "t", slots=1 << 14).slots == 1 << 14
    producer = RmqProducer(client, "t", TopicKind.FIXED_TIME)
    with pytest.raises(TypeError, match="FixedTimeMessage only"):
        producer.send(PriorityMessage("b", 17))
    with pytest.raises(TypeError, match="RMQ message"):
        producer.send("b")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="more than 0 s"):
        RmqConsumer(client, "t", timeout_s=0)
    with pytest.raises(TypeError, match="kind is a TopicKind, not 'priority'"):
        RmqProducer(client, "t", "priority")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="5 cannot be"):
        RmqConsumer(client, "t").run(5)  # type: ignore[arg-type]


def test_slots_and_kind_are_fixed_with_the_topic(client: Any) -> None:
    """Who says otherwise is told what differs, and nothing changes."""
    RmqProducer(client, "t", TopicKind.PRIORITY, slots=4)
    before = client.get_topic("t").settings
    with pytest.raises(TopicMismatch, match="slots is 4 and has to be 8") as refused:
        RmqProducer(client, "t", TopicKind.PRIORITY, slots=8)
    assert refused.value.differences == {"slots": (4, 8)}
    with pytest.raises(TopicMismatch, match="order is 'priority' and has to be 'time'"):
        RmqProducer(client, "t", slots=4).send(RangeMergeMessage("b", 5))
    with pytest.raises(TopicMismatch, match="slots"):
        RmqConsumer(client, "t", kind=TopicKind.PRIORITY)
    assert client.get_topic("t").settings == before
    assert RmqProducer(client, "t", slots=4).send(PriorityMessage("b", 17))


def test_range_merge_keeps_the_first_time(client: Any, clock: Any) -> None:
    """To its millisecond, also while it is overdue, in work, and waits for a retry."""
    producer, consumer = RmqProducer(client, "t"), RmqConsumer(client, "t")
    assert producer.send(RangeMergeMessage("b", 30 * DAY_MS))
    clock.advance(days=20)
    assert not producer.send(RangeMergeMessage("b", 60 * DAY_MS))
    assert not producer.send(RangeMergeMessage("b", 1))
    clock.advance(days=10, ms=-1)
    assert consumer.prepare() == []
    clock.advance(ms=1)
    assert not producer.send(RangeMergeMessage("b", 1)), "it is overdue"
    assert consumer.roll_back(one(consumer)) is RolledBack.RETRY
    assert not producer.send(RangeMergeMessage("b", 1))
    again = one(consumer)
    assert (again.attempt, again.retries_left) == (2, 15)
    assert consumer.commit(again) is Settled.DONE
    assert consumer.depth() == 0


@pytest.mark.parametrize(
    ("first", "changed"),
    [
        (RangeMergeMessage("b", 1), RangeMergeMessage("b", 2)),
        (PriorityMessage("b", 50), PriorityMessage("b", 20)),
        (FixedTimeMessage("b", PAST_MS), FixedTimeMessage("b", PAST_MS + 1)),
    ],
    ids=["RangeMerge", "Priority", "FixedTime"],
)
@pytest.mark.parametrize("end", ["commit", "roll back", "time"])
def test_a_change_during_the_work_is_never_swallowed(
    client: Any, clock: Any, first: RmqMessage, changed: RmqMessage, end: str
) -> None:
    """It is handed out once, after the one in work has ended, however often it was sent meanwhile
    and however the work ends.
    """
    producer = RmqProducer(client, "t")
    consumer = RmqConsumer(client, "t", timeout_s=60)
    producer.send(first)
    clock.advance(ms=LEASE_STEP_MS)
    delivery = one(consumer)
    assert producer.send(changed)
    assert not producer.send(changed)
    assert consumer.prepare() == [], "one body is worked on once at a time"
    clock.advance(ms=2)
    if end == "commit":
        assert consumer.commit(delivery) is Settled.DONE
    else:
        if end == "roll back":
            assert consumer.roll_back(delivery) is RolledBack.RETRY
        else:
            clock.advance(ms=59_997)
            assert consumer.prepare() == []
            clock.advance(ms=1)
        retried = one(RmqConsumer(client, "t"))
        assert (retried.attempt, retried.message.ref) == (2, delivery.message.ref)
        assert consumer.commit(delivery) is Settled.GONE
        assert consumer.roll_back(delivery) is RolledBack.GONE
        assert consumer.commit(retried) is Settled.DONE
    consumer = RmqConsumer(client, "t")
    last = one(consumer)
    assert (last.body, last.attempt) == ("b", 1)
    assert last.message.ref != delivery.message.ref
    assert consumer.commit(last) is Settled.DONE
    assert consumer.prepare() == []
    assert consumer.depth() == 0


def test_the_longest_overdue_comes_first(
    producer: RmqProducer, consumer: RmqConsumer, clock: Any
) -> None:
    began = clock.now_ms()
    for offset in (300, 100, 200):
        producer.send(FixedTimeMessage(f"b{offset}", began + offset))
    clock.advance(ms=310)
    found = consumer.prepare(3)
    assert [delivery.body for delivery in found] == ["b100", "b200", "b300"]
    assert consumer.roll_back(found[0]) is RolledBack.RETRY
    producer.send(FixedTimeMessage("past", PAST_MS))
    assert one(consumer).body == "b100", "what failed comes at once and first"
    assert one(consumer).message.deliver_at_ms == clock.now_ms(), "a past time means now"


def test_a_later_time_or_priority_replaces(
    client: Any, producer: RmqProducer, consumer: RmqConsumer, clock: Any
) -> None:
    start = clock.now_ms()
    assert producer.send(FixedTimeMessage("b", start + DAY_MS))
    assert not producer.send(FixedTimeMessage("b", start + 7 * DAY_MS))
    clock.advance(days=7, ms=-1)
    assert consumer.prepare() == []
    clock.advance(ms=1)
    assert one(consumer).message.deliver_at_ms == start + 7 * DAY_MS
    assert producer.send(FixedTimeMessage("c", start + 30 * DAY_MS))
    assert not producer.send(FixedTimeMessage("c", PAST_MS))
    assert one(consumer).body == "c"
    ranked = RmqProducer(client, "ranked")
    for priority in (90, 17):
        ranked.send(PriorityMessage("b", priority))
    assert one(RmqConsumer(client, "ranked")).message.priority == 17


def test_the_highest_priority_comes_first_and_what_failed_last(
    producer: RmqProducer, consumer: RmqConsumer
) -> None:
    for body, priority in (("low", 17), ("high", 1_000), ("middle", 50)):
        producer.send(PriorityMessage(body, priority))
    first = one(consumer)
    assert first.body == "high"
    assert consumer.roll_back(first) is RolledBack.RETRY
    assert [one(consumer).body for _ in range(3)] == ["middle", "low", "high"]


def test_a_new_send_during_the_wait_for_a_retry_begins_anew(
    producer: RmqProducer, consumer: RmqConsumer
) -> None:
    producer.send(PriorityMessage("b", 50))
    assert consumer.roll_back(one(consumer)) is RolledBack.RETRY
    assert not producer.send(PriorityMessage("b", 60))
    again = one(consumer)
    assert (again.attempt, again.message.priority) == (1, 60)


@pytest.mark.parametrize(
    "message",
    [RangeMergeMessage("b", 1), PriorityMessage("b", 999), FixedTimeMessage("b", PAST_MS)],
    ids=["RangeMerge", "Priority", "FixedTime"],
)
@pytest.mark.parametrize("by_time", [False, True], ids=["rolled back", "not settled"])
def test_seventeen_deliveries_then_dead_until_a_person_replays(
    client: Any, clock: Any, message: RmqMessage, by_time: bool
) -> None:
    RmqProducer(client, "t").send(message)
    consumer = RmqConsumer(client, "t", timeout_s=3_600)
    clock.advance(ms=LEASE_STEP_MS)
    for attempt in range(1, 18):
        delivery = one(consumer)
        assert (delivery.attempt, delivery.retries_left) == (attempt, 17 - attempt)
        if by_time:
            clock.advance(hours=1)
        else:
            outcome = consumer.roll_back(delivery)
            assert outcome is (RolledBack.RETRY if attempt < 17 else RolledBack.DEAD)
    assert consumer.roll_back(delivery) is RolledBack.GONE
    assert consumer.prepare() == []
    [letter] = consumer.dead_letters()
    assert (letter.body, letter.slot) == ("b", crc32(b"b") % 8)
    assert letter.died_at_ms == clock.now_ms()
    clock.advance(days=6)
    assert [changed.result for changed in consumer.replay([letter], delay_ms=DAY_MS)] == ["done"]
    assert [changed.result for changed in consumer.replay([letter])] == ["too_late"]
    assert list(consumer.dead_letters()) == consumer.prepare() == []
    clock.advance(days=1)
    assert one(consumer).attempt == 1


def test_a_body_that_was_sent_anew_is_not_replayed_beside_it(
    producer: RmqProducer, consumer: RmqConsumer
) -> None:
    producer.send(PriorityMessage("b", 50))
    while consumer.roll_back(one(consumer)) is not RolledBack.DEAD:
        pass
    [letter] = consumer.dead_letters()
    assert producer.send(PriorityMessage("b", 60)), "the dead one does not live"
    assert [changed.result for changed in consumer.replay([letter])] == ["too_late"]
    assert consumer.commit(one(consumer)) is Settled.DONE
    assert consumer.replay([]) == []


def test_messages_of_a_slot_basis_are_worked_on_one_at_a_time(
    producer: RmqProducer, consumer: RmqConsumer
) -> None:
    basis = "an order" * 100
    for body in ("1", "2", "3"):
        producer.send(FixedTimeMessage(body, PAST_MS, slot_basis=basis))
    producer.send(FixedTimeMessage("other", PAST_MS))
    taken = {each.body: each for each in consumer.prepare(10)}
    assert set(taken) == {"1", "other"}
    assert consumer.prepare(10) == []
    consumer.roll_back(taken["1"])
    for body in ("1", "2", "3"):
        delivery = one(consumer)
        assert delivery.body == body
        consumer.commit(delivery)


def test_a_rate_limit_paces_and_ends(client: Any) -> None:
    pace = {"per_second": 0.01, "burst": 2}
    producer = RmqProducer(client, "t", TopicKind.PRIORITY, rate_limit=pace)
    consumer = RmqConsumer(client, "t")
    producer.send_many(PriorityMessage(str(n), 17) for n in range(5))
    assert len(consumer.prepare(10)) == 2
    assert consumer.prepare(10) == []
    consumer.limit_rate(None)
    assert len(consumer.prepare(10)) == 3
    consumer.limit_rate(5, burst=10)
    settings = client.get_topic("t").settings
    assert dict(settings.rate_limit or {}) == {"per_second": 5, "burst": 10}
    assert (settings.order, settings.max_retry, settings.slots) == ("priority", 16, 8)


def test_many_producers_and_consumers_of_few_bodies(
    client: Any, clock: Any, in_threads: Callable[..., None]
) -> None:
    """Bodies are sent again and again while they are worked on: no body is in two hands at once,
    and each is handed out after it was last sent.
    """
    bodies, rounds = [f"b{n}" for n in range(20)], 30
    producer = RmqProducer(client, "t", TopicKind.RANGE_MERGE)
    guard, busy = threading.Lock(), set()
    sent_at: dict[str, float] = {}
    begun_at: dict[str, float] = {}
    left = [2]

    def produce() -> None:
        for _ in range(rounds):
            for body in bodies:
                with guard:
                    sent_at[body] = time.monotonic()
                producer.send(RangeMergeMessage(body, 1))
        with guard:
            left[0] -= 1

    def consume() -> None:
        consumer = RmqConsumer(client, "t")
        while True:
            done = left[0] == 0
            clock.advance(ms=1)
            deliveries = consumer.prepare(5)
            for delivery in deliveries:
                with guard:
                    assert delivery.body not in busy
                    busy.add(delivery.body)
                    begun_at[delivery.body] = time.monotonic()
            for delivery in deliveries:
                with guard:
                    busy.remove(delivery.body)
                assert consumer.commit(delivery) is Settled.DONE
            if done and not deliveries and consumer.depth() == 0:
                return

    in_threads(produce, produce, consume, consume)
    assert all(begun_at[body] > sent_at[body] for body in bodies)


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

    def handle_the_rest(delivery: RmqDelivery) -> None:
        seen.append((delivery.body, delivery.attempt))
        if len(seen) == 7:
            stop.set()

    assert consumer.run(handle_the_rest, stop=stop, batch=2) >= 3
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
