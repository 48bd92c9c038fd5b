"""RmqTopic: slots, the three kinds, two-phase consumption, retries, dead letters.

Method: topics of few slots on a clock that stands; keys are compared whole where they matter.
"""

from __future__ import annotations

from zlib import crc32

import pytest
import redis

from delaylog.client.queues import FixedTimeMessage, PriorityMessage, RangeMergeMessage, RmqMessage
from tests.redis.recipes.connection import RedisPyConnection
from tests.redis.recipes.rmq.deliveries import Delivery
from tests.redis.recipes.rmq.topic import RmqTopic, RolledBack, TopicKind
from tests.redis.recipes.support import NOW_MS, HandClock, contents

NOW_S = NOW_MS // 1000
STORE, PREPARE, DEAD = "t_0", "prepare_{t_0}", "dead_{t_0}"


def topic_of(
    connection: RedisPyConnection, clock: HandClock, kind: TopicKind, slots: int = 1
) -> RmqTopic:
    return RmqTopic(connection, "t", kind, slots=slots, timeout_s=60, clock=clock)


@pytest.fixture
def merging(connection: RedisPyConnection, clock: HandClock) -> RmqTopic:
    return topic_of(connection, clock, TopicKind.RANGE_MERGE)


@pytest.fixture
def ranked(connection: RedisPyConnection, clock: HandClock) -> RmqTopic:
    return topic_of(connection, clock, TopicKind.PRIORITY)


@pytest.fixture
def timed(connection: RedisPyConnection, clock: HandClock) -> RmqTopic:
    return topic_of(connection, clock, TopicKind.FIXED_TIME)


def taken(topic: RmqTopic) -> Delivery:
    delivery = topic.pop(0)
    assert delivery is not None
    return delivery


def test_a_slot_is_the_common_crc32_of_basis_or_body(
    connection: RedisPyConnection, clock: HandClock, client: redis.Redis
) -> None:
    topic = topic_of(connection, clock, TopicKind.PRIORITY, slots=8)
    assert crc32(b"123456789") == 0xCBF43926
    assert topic.slot_of(PriorityMessage("123456789", 17)) == 0xCBF43926 % 8
    assert topic.slot_of(PriorityMessage("any", 17, slot_basis="123456789")) == 6
    assert topic.slot_of(PriorityMessage("é", 17)) == crc32("é".encode()) % 8
    bodies = [f"b{n}" for n in range(50)]
    for body in bodies:
        topic.send(PriorityMessage(body, 17))
    stores = contents(client)
    assert set(stores) == {f"t_{crc32(body.encode()) % 8}" for body in bodies}
    assert topic.depth() == 50
    assert {delivery.body for _ in bodies if (delivery := topic.pop_any())} == set(bodies)
    assert topic.pop_any() is None
    assert set(contents(client)) == {f"prepare_{{{store}}}" for store in stores}


def test_what_makes_no_sense_is_refused(
    connection: RedisPyConnection, clock: HandClock, timed: RmqTopic
) -> None:
    for slots in (0, 3, 12):
        with pytest.raises(ValueError, match="power of two"):
            topic_of(connection, clock, TopicKind.PRIORITY, slots)
    with pytest.raises(ValueError, match="more than 0"):
        RangeMergeMessage("b", 0)
    with pytest.raises(ValueError, match="more than 16"):
        PriorityMessage("b", 16)
    with pytest.raises(ValueError, match="ahead"):
        timed.send(FixedTimeMessage("b", NOW_MS))
    with pytest.raises(TypeError, match="FixedTimeMessage only"):
        timed.send(PriorityMessage("b", 17))


def test_range_merge_keeps_the_first_time(
    merging: RmqTopic, clock: HandClock, client: redis.Redis
) -> None:
    """Also while it is overdue and piled up."""
    assert merging.send(RangeMergeMessage("b", 500))
    clock.now_ms += 100
    assert not merging.send(RangeMergeMessage("b", 1))
    assert contents(client) == {STORE: ("zset", [("b", NOW_MS + 500)])}
    clock.now_ms = NOW_MS + 499
    assert merging.pop(0) is None
    clock.now_ms = NOW_MS + 9_000
    assert not merging.send(RangeMergeMessage("b", 500))
    delivery = taken(merging)
    assert (delivery.body, delivery.retries_left, delivery.attempt) == ("b", 16, 1)
    # What comes during the work is a new message.
    assert merging.send(RangeMergeMessage("b", 500))


def test_the_longest_overdue_comes_first(
    timed: RmqTopic, clock: HandClock, client: redis.Redis
) -> None:
    for offset in (300, 100, 200):
        timed.send(FixedTimeMessage(f"b{offset}", NOW_MS + offset))
    assert timed.pop(0) is None
    clock.now_ms = NOW_MS + 250
    first = taken(timed)
    assert first.prepare_score == (clock.now_ms // 1000) * 1000 + 16
    assert contents(client)[PREPARE] == ("zset", [("b100", first.prepare_score)])
    assert taken(timed).body == "b200"
    assert timed.pop(0) is None


def test_a_later_time_or_priority_replaces(
    timed: RmqTopic, connection: RedisPyConnection, clock: HandClock, client: redis.Redis
) -> None:
    assert timed.send(FixedTimeMessage("b", NOW_MS + 100))
    assert not timed.send(FixedTimeMessage("b", NOW_MS + 900))
    assert client.zscore(STORE, "b") == NOW_MS + 900
    client.flushall()
    ranked = topic_of(connection, clock, TopicKind.PRIORITY)
    ranked.send(PriorityMessage("b", 90))
    ranked.send(PriorityMessage("b", 17))
    assert client.zscore(STORE, "b") == 17


def test_the_highest_priority_comes_first(ranked: RmqTopic) -> None:
    """Of equal ones the greatest member, as ZPOPMAX has it."""
    for body, priority in (("low", 17), ("high", 1_000), ("a", 50), ("z", 50), ("m", 50)):
        ranked.send(PriorityMessage(body, priority))
    assert [taken(ranked).body for _ in range(5)] == ["high", "z", "m", "a", "low"]
    assert ranked.pop(0) is None


def test_commit_once(ranked: RmqTopic, client: redis.Redis) -> None:
    ranked.send(PriorityMessage("b", 17))
    delivery = taken(ranked)
    assert ranked.commit(delivery)
    assert not ranked.commit(delivery)
    assert ranked.roll_back(delivery) is RolledBack.GONE
    assert contents(client) == {}


def test_a_failed_priority_message_comes_after_fresh_ones(ranked: RmqTopic) -> None:
    ranked.send(PriorityMessage("failed", 1_000))
    assert ranked.roll_back(taken(ranked)) is RolledBack.RETRY
    ranked.send(PriorityMessage("fresh", 17))
    assert [taken(ranked).body for _ in range(2)] == ["fresh", "failed"]


def test_a_failed_timed_message_comes_at_once_and_first(timed: RmqTopic, clock: HandClock) -> None:
    timed.send(FixedTimeMessage("a", NOW_MS + 10))
    timed.send(FixedTimeMessage("b", NOW_MS + 20))
    clock.now_ms += 100
    assert timed.roll_back(taken(timed)) is RolledBack.RETRY
    assert [taken(timed).body for _ in range(2)] == ["a", "b"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (TopicKind.RANGE_MERGE, RangeMergeMessage("b", 5)),
        (TopicKind.PRIORITY, PriorityMessage("b", 999)),
        (TopicKind.FIXED_TIME, FixedTimeMessage("b", NOW_MS + 5)),
    ],
)
def test_seventeen_deliveries_then_dead(
    connection: RedisPyConnection,
    clock: HandClock,
    client: redis.Redis,
    kind: TopicKind,
    message: RmqMessage,
) -> None:
    """One and sixteen retries, whatever the kind; a dead letter comes back by hand only."""
    topic = topic_of(connection, clock, kind)
    topic.send(message)
    clock.now_ms += 5
    for attempt in range(1, 18):
        delivery = taken(topic)
        assert (delivery.attempt, delivery.retries_left) == (attempt, 17 - attempt)
        outcome = topic.roll_back(delivery)
        if attempt < 17:
            assert outcome is RolledBack.RETRY
            assert client.zscore(STORE, "b") == 17 - attempt
    assert outcome is RolledBack.DEAD
    assert contents(client) == {DEAD: ("zset", [("b", clock.now_ms)])}
    clock.now_ms += 10**9
    assert topic.pop(0) is None
    assert topic.scan_timeouts(0) == 0

    [letter] = topic.dead_letters(0)
    assert (letter.body, letter.slot, letter.died_at_ms) == ("b", 0, NOW_MS + 5)
    assert topic.revive(letter)
    assert not topic.revive(letter)
    assert topic.dead_letters(0) == []
    assert taken(topic).attempt == 1


def test_a_dead_letter_can_be_given_a_time_or_a_priority(
    ranked: RmqTopic, client: redis.Redis
) -> None:
    client.zadd(DEAD, {"b": 5, "c": 6, "d": 7})
    b, c, d = ranked.dead_letters(0)
    assert ranked.dead_letters(0, count=1) == [b]
    with pytest.raises(ValueError, match="more than 16"):
        ranked.revive(b, score=16)
    assert ranked.revive(b, score=70)
    assert ranked.revive(c)
    ranked.send(PriorityMessage("d", 300))
    assert ranked.revive(d)
    assert contents(client)[STORE] == ("zset", [("c", 17), ("b", 70), ("d", 300)])


def test_a_newer_send_keeps_its_own_score_through_a_roll_back(
    ranked: RmqTopic, client: redis.Redis
) -> None:
    ranked.send(PriorityMessage("b", 50))
    first = taken(ranked)
    ranked.send(PriorityMessage("b", 70))
    assert ranked.roll_back(first) is RolledBack.RETRY
    assert client.zscore(STORE, "b") == 70
    assert taken(ranked).attempt == 1


def test_a_send_during_the_wait_for_a_retry(
    ranked: RmqTopic, connection: RedisPyConnection, clock: HandClock, client: redis.Redis
) -> None:
    """Priority and FixedTime begin anew; RangeMerge merges into the retry."""
    ranked.send(PriorityMessage("b", 50))
    ranked.roll_back(taken(ranked))
    assert not ranked.send(PriorityMessage("b", 60))
    assert taken(ranked).attempt == 1
    client.flushall()
    merging = topic_of(connection, clock, TopicKind.RANGE_MERGE)
    merging.send(RangeMergeMessage("b", 5))
    clock.now_ms += 5
    merging.roll_back(taken(merging))
    assert not merging.send(RangeMergeMessage("b", 5))
    assert taken(merging).attempt == 2


def test_what_is_not_settled_in_time_is_rolled_back(
    ranked: RmqTopic, clock: HandClock, client: redis.Redis
) -> None:
    """To the second: those delivered in the second that is 60 before this one."""
    clock.now_ms = NOW_S * 1000 + 999
    for n in range(250):
        ranked.send(PriorityMessage(f"b{n}", 17))
    early = [taken(ranked) for _ in range(240)]
    clock.now_ms += 1
    late = [taken(ranked) for _ in range(10)]
    ranked.commit(early[0])
    clock.now_ms = (NOW_S + 60) * 1000 - 1
    assert ranked.scan_timeouts(0) == 0
    clock.now_ms += 1
    assert ranked.scan_timeouts(0) == 239
    assert ranked.depth() == 239
    assert client.zcard(PREPARE) == len(late)
    # Whoever held one has lost it, and it was given out again.
    again = taken(ranked)
    held = next(delivery for delivery in early if delivery.body == again.body)
    assert again.attempt == 2
    assert ranked.roll_back(held) is RolledBack.GONE
    assert ranked.roll_back(again) is RolledBack.RETRY


def test_slots_take_turns(connection: RedisPyConnection, clock: HandClock) -> None:
    topic = topic_of(connection, clock, TopicKind.PRIORITY, slots=4)
    for n in range(200):
        topic.send(PriorityMessage(f"b{n}", 17))
    slots = [delivery.slot for _ in range(8) if (delivery := topic.pop_any())]
    assert slots == [0, 1, 2, 3] * 2
    some = [delivery.slot for _ in range(6) if (delivery := topic.pop_any([1, 3]))]
    assert set(some) == {1, 3}
