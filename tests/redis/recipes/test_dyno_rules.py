"""DynoQueue call by call: what each answers and what it leaves in the keys.

Method: a queue of three shards on a clock that stands; where keys matter, the whole content of the
server is compared.
"""

from __future__ import annotations

import pytest
import redis

from delaylog.client.queues import DynoMessage
from tests.redis.recipes.connection import RedisPyConnection
from tests.redis.recipes.dyno.dyno_queue import DynoQueue
from tests.redis.recipes.dyno_queues import BODIES, UNACK_MS, ids, make_queue, queue_key, unack_key
from tests.redis.recipes.support import NOW_MS, HandClock, contents


@pytest.fixture
def queue(connection: RedisPyConnection, clock: HandClock) -> DynoQueue:
    return make_queue(connection, clock)


@pytest.fixture
def single(connection: RedisPyConnection, clock: HandClock) -> DynoQueue:
    """A queue of one shard, where everything pushed is local."""
    return make_queue(connection, clock, "a", "a")


def test_push_goes_round_beginning_with_the_second_shard(
    queue: DynoQueue, client: redis.Redis
) -> None:
    messages = [DynoMessage(f"m{n}", f"p{n}", timeout_ms=10 * n, priority=n) for n in range(4)]
    assert queue.push(messages) == ["m0", "m1", "m2", "m3"]
    assert contents(client) == {
        BODIES: (
            "hash",
            {
                f"m{n}": f'{{"id":"m{n}","payload":"p{n}","timeout":{10 * n},"priority":{n}}}'
                for n in range(4)
            },
        ),
        queue_key("b"): ("zset", [("m0", NOW_MS), ("m3", NOW_MS + 30.03)]),
        queue_key("c"): ("zset", [("m1", NOW_MS + 10.01)]),
        queue_key("a"): ("zset", [("m2", NOW_MS + 20.02)]),
    }
    assert queue.push([]) == []


def test_push_again_replaces_and_may_stand_in_two_queues(
    queue: DynoQueue, client: redis.Redis
) -> None:
    queue.push([DynoMessage("m", "old")])
    queue.push([DynoMessage("m", "new")])
    assert queue.size() == 2
    assert queue.get("m").payload == "new"  # type: ignore[union-attr]
    assert client.hlen(BODIES) == 1


def test_a_body_leaves_out_what_is_empty() -> None:
    from delaylog.client.queues.dyno.message import encode
    from tests.redis.recipes.dyno.shards import decode

    assert encode(DynoMessage("m")) == '{"id":"m","timeout":0,"priority":0}'
    full = '{"id":"é","payload":"\\"x\\"","timeout":5,"priority":9,"shard":"a"}'
    assert encode(decode(full)) == full
    assert decode('{"id":"m","unknown":[1]}') == DynoMessage("m")
    assert decode('{"id":null,"payload":null}').payload == ""
    for nonsense in ("[]", "x", '{"id":"m","priority":100}'):
        with pytest.raises(ValueError, match=r".+"):
            decode(nonsense)


@pytest.mark.parametrize("priority", [-1, 100])
def test_a_priority_out_of_range_is_refused(priority: int) -> None:
    with pytest.raises(ValueError, match="priority"):
        DynoMessage("m", priority=priority)


def test_messages_are_equal_by_id() -> None:
    assert DynoMessage("m", "x") == DynoMessage("m", "y", timeout_ms=4)
    assert len({DynoMessage("m", "x"), DynoMessage("m", "y")}) == 1


def test_a_delayed_message_is_seen_when_it_is_due(single: DynoQueue, clock: HandClock) -> None:
    """One millisecond before, too: every look asks up to now + 1."""
    single.push([DynoMessage("m", timeout_ms=50)])
    assert single.size() == 1
    clock.now_ms += 48
    assert single.peek(1) == single.pop(1) == single.unsafe_peek_all_shards(1) == []
    clock.now_ms += 1
    assert ids(single.peek(5)) == ids(single.unsafe_peek_all_shards(5)) == ["m"]
    assert ids(single.pop(5)) == ["m"]
    assert single.peek(1) == []


def test_pop_moves_to_unack(queue: DynoQueue, client: redis.Redis) -> None:
    """Own shard only, in order, and no more than asked for."""
    queue.push([DynoMessage(f"m{n}", priority=9 - n) for n in range(9)])
    assert ids(queue.pop(2)) == ["m6", "m3"]
    assert client.zrange(unack_key("b"), 0, -1, withscores=True)[0][1] == NOW_MS + UNACK_MS
    assert queue.shard_sizes() == {
        "a": {"size": 3, "uacked": 0},
        "b": {"size": 1, "uacked": 2},
        "c": {"size": 3, "uacked": 0},
    }
    assert ids(queue.pop(9)) == ["m0"]
    assert queue.pop(0) == queue.pop(-1) == queue.bulk_pop(0) == queue.unsafe_bulk_pop(0) == []
    assert queue.unsafe_pop_all_shards(0) == []
    assert queue.size() == 6


def test_pop_misses_what_others_took(
    single: DynoQueue, client: redis.Redis, clock: HandClock
) -> None:
    """In unack already, gone from the queue, without a body: each costs one miss, and the queue
    entry of the second and third is left in unack, where `process_unacks` finds it.
    """
    single.push([DynoMessage(f"m{n}") for n in range(4)])
    client.zadd(unack_key("a"), {"m0": NOW_MS + 77})
    client.hdel(BODIES, "m2")
    assert ids(single.pop(4)) == ["m1", "m3"]
    assert single.misses == 2
    assert client.zrange(queue_key("a"), 0, -1) == [b"m0"]
    assert client.zscore(unack_key("a"), "m0") == NOW_MS + 77
    assert client.zscore(unack_key("a"), "m2") == NOW_MS + UNACK_MS
    clock.now_ms += UNACK_MS
    assert single.process_unacks() == 3
    assert client.zscore(unack_key("a"), "m2") is None
    assert sorted(client.zrange(queue_key("a"), 0, -1)) == [b"m0", b"m1", b"m3"]


def test_an_empty_pop_waits_and_leaves_nothing_wanted(single: DynoQueue, clock: HandClock) -> None:
    assert single.pop(5, wait_ms=1_000) == []
    assert clock.now_ms - NOW_MS >= 1_000
    assert clock.slept_ms == [200] * 5
    assert single.prefetch_wanted == 0


def test_a_pop_that_waits_gets_what_arrives_meanwhile(
    connection: RedisPyConnection, clock: HandClock
) -> None:
    pushed = iter([["m0"], [], ["m1", "m2"], ["m3"]])

    def sleep(duration_ms: float) -> None:
        clock.sleep(duration_ms)
        other.push([DynoMessage(message_id) for message_id in next(pushed)])

    other = make_queue(connection, clock, "a", "a")
    single = make_queue(connection, clock, "a", "a")
    single._sleep = sleep
    assert ids(single.pop(3, wait_ms=10_000)) == ["m0", "m1", "m2"]
    assert clock.slept_ms == [200] * 3
    assert single.misses == 0


def test_pop_all_shards_takes_its_own_first(queue: DynoQueue) -> None:
    queue.push([DynoMessage(f"m{n}") for n in range(6)])
    assert ids(queue.unsafe_pop_all_shards(3)) == ["m0", "m3", "m2"]
    assert ids(queue.unsafe_peek_all_shards(9)) == ["m5", "m1", "m4"]
    assert ids(queue.unsafe_pop_all_shards(9)) == ["m5", "m1", "m4"]
    assert queue.size() == 0


def test_bulk_pop_takes_by_one_script(queue: DynoQueue) -> None:
    queue.push([DynoMessage(f"m{n}") for n in range(6)])
    assert ids(queue.bulk_pop(9)) == ["m0", "m3"]
    assert queue.bulk_pop(9) == []
    assert ids(queue.unsafe_bulk_pop(3)) == ["m2", "m5", "m1"]
    assert queue.shard_sizes()["b"] == {"size": 0, "uacked": 2}
    assert ids(queue.unsafe_bulk_pop(3)) == ["m4"]
    assert queue.unsafe_bulk_pop(3) == []


def test_pop_by_id_does_not_ask_whether_it_is_due(queue: DynoQueue) -> None:
    queue.push([DynoMessage(f"m{n}", timeout_ms=5_000) for n in range(3)])
    assert queue.pop_with_msg_id("m1") is None
    assert queue.pop_with_msg_id("m0") == DynoMessage("m0")
    assert queue.pop_with_msg_id("m0") is None
    assert queue.unsafe_pop_with_msg_id_all_shards("m1") == DynoMessage("m1")
    assert queue.unsafe_pop_with_msg_id_all_shards("none") is None
    assert queue.misses > 0


def test_pop_by_id_in_one_script_does(queue: DynoQueue, clock: HandClock) -> None:
    queue.push([DynoMessage("m", timeout_ms=5_000)])
    assert queue.atomic_pop_with_msg_id_all_shards("m") is None
    clock.now_ms += 5_000
    assert queue.atomic_pop_with_msg_id_all_shards("m") == DynoMessage("m")
    assert queue.atomic_pop_with_msg_id_all_shards("m") is None


def test_pop_by_id_misses_without_a_body_or_when_it_is_taken(
    single: DynoQueue, client: redis.Redis
) -> None:
    single.push([DynoMessage("m"), DynoMessage("n")])
    client.hdel(BODIES, "m")
    assert single.pop_with_msg_id("m") is None
    assert client.zscore(unack_key("a"), "m") is None
    client.zadd(unack_key("a"), {"n": 5})
    assert single.pop_with_msg_id("n") is None
    assert client.zscore(queue_key("a"), "n") == NOW_MS


def test_ack_once(queue: DynoQueue, client: redis.Redis) -> None:
    queue.push([DynoMessage(f"m{n}") for n in range(6)])
    assert not queue.ack("m0")
    taken = queue.unsafe_pop_all_shards(6)
    assert queue.ack("m4")
    assert not queue.ack("m4")
    assert queue.get("m4") is None
    queue.ack_all(taken)
    assert contents(client) == {}


def test_set_unack_timeout(queue: DynoQueue, clock: HandClock, client: redis.Redis) -> None:
    queue.push([DynoMessage("m")])
    assert not queue.set_unack_timeout("m", 5)
    queue.pop(1)
    for timeout_ms, back_after_ms in ((500, 500), (10_000, 10_000), (0, 0)):
        assert queue.set_unack_timeout("m", timeout_ms)
        assert client.zscore(unack_key("b"), "m") == clock.now_ms + timeout_ms
        clock.now_ms += max(0, back_after_ms - 1)
        assert queue.process_unacks() == (0 if back_after_ms else 1)
        clock.now_ms += 1 if back_after_ms else 0
        assert queue.process_unacks() == (1 if back_after_ms else 0)
        assert ids(queue.pop(1)) == ["m"]


def test_set_timeout_moves_what_is_queued(
    queue: DynoQueue, clock: HandClock, client: redis.Redis
) -> None:
    queue.push([DynoMessage("m", timeout_ms=20_000, priority=99)])
    assert queue.pop(1) == []
    assert queue.set_timeout("m", 1)
    # The priority is lost from the score, and kept in the body.
    assert client.zscore(queue_key("b"), "m") == NOW_MS + 1
    assert client.hget(BODIES, "m") == b'{"id":"m","timeout":1,"priority":99}'
    clock.now_ms += 1
    assert ids(queue.pop(1)) == ["m"]
    assert not queue.set_timeout("m", 1)
    assert not queue.set_timeout("none", 1)


def test_remove_is_true_for_queued_ones_only(queue: DynoQueue, client: redis.Redis) -> None:
    queue.push([DynoMessage("m"), DynoMessage("n")])
    queue.pop(1)
    assert not queue.remove("m")
    assert queue.get("m") is not None
    assert queue.shard_sizes()["b"]["uacked"] == 0
    assert queue.remove("n")
    assert not queue.remove("n")
    assert queue.get("n") is None
    assert list(contents(client)) == [BODIES]


def test_atomic_remove_is_true_for_anything(queue: DynoQueue, client: redis.Redis) -> None:
    queue.push([DynoMessage("m"), DynoMessage("n")])
    queue.pop(1)
    assert queue.atomic_remove("m")
    assert queue.atomic_remove("n")
    assert not queue.atomic_remove("n")
    client.hset(BODIES, "only a body", "{}")
    assert queue.atomic_remove("only a body")
    assert contents(client) == {}
    # In two queues and nowhere else: neither sum is one. The original says no, too.
    client.zadd(queue_key("a"), {"m": 1})
    client.zadd(queue_key("b"), {"m": 1})
    assert not queue.atomic_remove("m")
    assert contents(client) == {}


def test_ensure_pushes_what_is_nowhere(queue: DynoQueue) -> None:
    assert queue.ensure(DynoMessage("m", "1"))
    assert not queue.ensure(DynoMessage("m", "2"))
    queue.pop(1)
    assert not queue.ensure(DynoMessage("m", "3"))
    assert queue.get("m").payload == "1"  # type: ignore[union-attr]
    queue.ack("m")
    assert queue.ensure(DynoMessage("m", "4"))
