"""DynoQueue call by call: searching, reading, and what keeps a queue healthy.

Method: as in test_dyno_rules.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from delaylog.client.queues import DynoMessage
from tests.redis.recipes.connection import RedisPyConnection
from tests.redis.recipes.dyno.dyno_queue import DynoQueue
from tests.redis.recipes.dyno_queues import BODIES, UNACK_MS, make_queue, queue_key, unack_key
from tests.redis.recipes.support import NOW_MS, HandClock, contents


@pytest.fixture
def queue(connection: RedisPyConnection, clock: HandClock) -> DynoQueue:
    return make_queue(connection, clock)


@pytest.fixture
def single(connection: RedisPyConnection, clock: HandClock) -> DynoQueue:
    """A queue of one shard, where everything pushed is local."""
    return make_queue(connection, clock, "a", "a")


def test_predicates_find_in_the_json_text(queue: DynoQueue) -> None:
    queue.push([DynoMessage(f"m{n}", f"payload {n}") for n in range(40)])
    assert queue.contains_predicate('"payload 3[57]"')
    assert queue.get_msg_with_predicate('"payload":"payload 17"') == "m17"
    assert queue.get_msg_with_predicate("payload %d%d%d") is None
    # m0 is in the own shard, m1 is not.
    assert queue.get_msg_with_predicate("payload 0", local=True) == "m0"
    assert queue.get_msg_with_predicate('payload 1"', local=True) is None
    assert queue.contains_predicate('payload 1"')
    queue.pop_with_msg_id("m0")
    assert not queue.contains_predicate("payload 0", local=True)
    assert queue.contains_predicate("payload 0")


def test_pop_with_predicate_takes_the_first_in_score_order(
    queue: DynoQueue, clock: HandClock
) -> None:
    """m0 b, m1 c, m2 a, m3 b: the lowest score wins over all shards, not-due ones never."""
    queue.push(
        [
            DynoMessage("m0", "yes", priority=30),
            DynoMessage("m1", "yes", priority=20),
            DynoMessage("m2", "no", priority=0),
            DynoMessage("m3", "yes", priority=40),
            DynoMessage("m4", "yes", timeout_ms=500),
        ]
    )
    found = queue.pop_msg_with_predicate('"yes"')
    assert found == DynoMessage("m1")
    assert found.payload == '{"id":"m1","payload":"yes","timeout":0,"priority":20}'
    assert queue.pop_msg_with_predicate("yes", local=True) == DynoMessage("m0")
    assert queue.pop_msg_with_predicate("yes", local=True) == DynoMessage("m3")
    assert queue.pop_msg_with_predicate("yes") is None
    clock.now_ms += 500
    assert queue.pop_msg_with_predicate("yes", local=True) is None
    assert queue.pop_msg_with_predicate("yes") == DynoMessage("m4")
    assert queue.shard_sizes() == {
        "a": {"size": 1, "uacked": 0},
        "b": {"size": 0, "uacked": 2},
        "c": {"size": 0, "uacked": 2},
    }


def test_reading(queue: DynoQueue, client: redis.Redis) -> None:
    queue.push([DynoMessage("m", "p"), DynoMessage("n")])
    queue.pop(1)
    assert queue.get("m").payload == queue.local_get("m").payload == "p"  # type: ignore[union-attr]
    assert queue.get("none") is queue.local_get("none") is None
    client.hset(BODIES, "broken", "not json")
    assert queue.get("broken") is None
    texts = {message.id: message.payload for message in queue.get_all_messages()}
    assert texts == {
        "m": '{"id":"m","payload":"p","timeout":0,"priority":0}',
        "n": '{"id":"n","timeout":0,"priority":0}',
        "broken": "not json",
    }


@pytest.mark.parametrize("process", [DynoQueue.process_unacks, DynoQueue.atomic_process_unacks])
def test_unacked_messages_come_back(
    queue: DynoQueue,
    clock: HandClock,
    client: redis.Redis,
    process: Callable[[DynoQueue], int],
) -> None:
    """With their deadline as their score; of the own shard only; bodiless ones are dropped."""
    queue.push([DynoMessage(f"m{n}") for n in range(6)])
    queue.unsafe_pop_all_shards(6)
    client.hdel(BODIES, "m3")
    clock.now_ms += UNACK_MS - 1
    assert process(queue) == 0
    clock.now_ms += 1
    assert process(queue) == 1
    assert process(queue) == 0
    assert client.zscore(queue_key("b"), "m0") == NOW_MS + UNACK_MS
    assert queue.shard_sizes() == {
        "a": {"size": 0, "uacked": 2},
        "b": {"size": 1, "uacked": 0},
        "c": {"size": 0, "uacked": 2},
    }


def test_one_run_takes_a_thousand(single: DynoQueue, client: redis.Redis) -> None:
    members = {f"m{n}": n for n in range(1_100)}
    client.zadd(unack_key("a"), members)
    client.hset(BODIES, mapping=dict.fromkeys(members, "{}"))
    assert single.atomic_process_unacks() == 1_000
    assert single.process_unacks() == 100


def test_the_script_rounds_deadlines_half_to_even(single: DynoQueue, client: redis.Redis) -> None:
    deadlines = {"m0": 10.5, "m1": 11.5, "m2": 12.25}
    client.hset(BODIES, mapping=dict.fromkeys(deadlines, "{}"))
    client.zadd(unack_key("a"), deadlines)
    single.process_unacks()
    assert contents(client)[queue_key("a")][1] == [("m0", 10.5), ("m1", 11.5), ("m2", 12.25)]
    client.delete(queue_key("a"))
    client.zadd(unack_key("a"), deadlines)
    single.atomic_process_unacks()
    assert contents(client)[queue_key("a")][1] == [("m0", 10), ("m1", 12), ("m2", 12)]


def test_stale_messages(queue: DynoQueue, client: redis.Redis) -> None:
    """Due, without a body, not in unack; of each shard the first ten due ids are looked at."""
    queue.push([DynoMessage(f"m{n:02}", timeout_ms=5_000 * (n >= 33)) for n in range(36)])
    assert queue.find_stale_messages() == []
    # Of shard b: m00 m03 ... m30 are due, m30 is the eleventh.
    client.hdel(BODIES, "m00", "m03", "m30", "m33")
    client.zadd(unack_key("b"), {"m03": 1})
    assert queue.find_stale_messages() == [DynoMessage("m00")]


def test_clear(queue: DynoQueue, client: redis.Redis) -> None:
    queue.push([DynoMessage(f"m{n}") for n in range(6)])
    queue.pop(1)
    queue.clear()
    assert contents(client) == {}
    assert queue.size() == 0


def test_shards_must_make_sense(connection: RedisPyConnection) -> None:
    with pytest.raises(ValueError, match="own shard"):
        DynoQueue(connection, "jobs", shards=["a"], own_shard="b")
    with pytest.raises(ValueError, match="twice"):
        DynoQueue(connection, "jobs", shards=["a", "a"], own_shard="a")
