"""What a server must reproduce for Dyno's scripts: each trap, sent as the scripts are sent.

Method: our own scripts by EVAL where a script shows the trap, a line of Lua where only the
conversion matters. The answers are those of a real redis-server 7.0.15.
"""

from __future__ import annotations

from typing import Any

import pytest
import redis

from delaylog.client.queues import DynoMessage
from tests.redis.recipes.connection import RedisPyConnection
from tests.redis.recipes.dyno import scripts
from tests.redis.recipes.dyno.dyno_queue import DynoQueue
from tests.redis.recipes.support import HandClock, contents
from tests.redis.servers import RedisServer

BODIES = "dynoQueue.MESSAGE.q"
QUEUE = "dynoQueue.QUEUE.q.a"
UNACK = "dynoQueue.UNACK.q.a"


@pytest.fixture
def queue(connection: RedisPyConnection, clock: HandClock) -> DynoQueue:
    return DynoQueue(connection, "q", shards=["a"], own_shard="a", clock=clock)


def run(client: redis.Redis, lua: str, *args: Any) -> Any:
    return client.eval(lua, 1, BODIES, *args)


def bulk_pop(client: redis.Redis, now_ms: int, *ids: str) -> Any:
    head = (len(ids), now_ms + 1, now_ms + 60_000, QUEUE, UNACK)
    return run(client, scripts.BULK_POP.lua, *head, *ids)


def test_1_an_add_that_lost_is_not_noticed(
    queue: DynoQueue, client: redis.Redis, clock: HandClock
) -> None:
    """The message is given out though another has it, whose deadline stays."""
    queue.push([DynoMessage("m")])
    client.zadd(UNACK, {"m": 5})
    [body] = bulk_pop(client, clock(), "m")
    assert body == b'{"id":"m","timeout":0,"priority":0}'
    assert client.exists(QUEUE) == 0
    assert client.zscore(UNACK, "m") == 5

    queue.push([DynoMessage("m")])
    assert queue.atomic_pop_with_msg_id_all_shards("m") == DynoMessage("m")
    assert client.zscore(UNACK, "m") == 5
    queue.push([DynoMessage("m")])
    assert queue.pop_msg_with_predicate("m") == DynoMessage("m")
    assert client.zscore(UNACK, "m") == 5


def test_2_one_id_that_is_gone_spoils_the_bulk(
    queue: DynoQueue, client: redis.Redis, clock: HandClock
) -> None:
    """Those before it are moved and not delivered; they come back as unacked."""
    queue.push([DynoMessage(f"m{n}") for n in range(4)])
    assert bulk_pop(client, clock(), "m0", "m1", "gone", "m2") == []
    assert client.zrange(UNACK, 0, -1) == [b"m0", b"m1"]
    assert client.zrange(QUEUE, 0, -1) == [b"m2", b"m3"]
    clock.now_ms += 60_000
    assert queue.atomic_process_unacks() == 2
    assert [message.id for message in queue.bulk_pop(9)] == ["m2", "m3", "m0", "m1"]


def test_2_of_all_shards(client: redis.Redis, clock: HandClock) -> None:
    connection = RedisPyConnection(client)
    queue = DynoQueue(connection, "q", shards=["a", "b"], own_shard="a", clock=clock)
    queue.push([DynoMessage(f"m{n}") for n in range(4)])
    places = (QUEUE, UNACK, QUEUE[:-1] + "b", UNACK[:-1] + "b")
    head = (4, 2, clock() + 1, clock() + 60_000, *places)
    ids = ("m0", "m1", "gone", "m2")
    assert run(client, scripts.BULK_POP_ALL.lua, *head, *ids) == []
    sizes = queue.shard_sizes()
    assert sizes == {"a": {"size": 1, "uacked": 1}, "b": {"size": 1, "uacked": 1}}


def test_3_scores_are_printed_with_seventeen_digits(
    endpoint: RedisServer, client: redis.Redis, queue: DynoQueue, clock: HandClock
) -> None:
    printed = {
        1658492212132.07: b"1658492212132.0701",
        0.1: b"0.10000000000000001",
        3.0: b"3",
        1e17: b"1e+17",
        float("inf"): b"inf",
    }
    with endpoint.client(protocol=2) as raw:
        raw.response_callbacks.clear()
        for score, text in printed.items():
            client.zadd("z", {"m": score})
            assert raw.execute_command("ZSCORE", "z", "m") == text
            assert run(client, "return redis.call('ZSCORE', 'z', 'm')") == text
    # Compared as texts "9" is after "1000": what is due long ago is passed over, not refused.
    client.hset(BODIES, "m", "body")
    client.zadd(QUEUE, {"m": 9})
    assert bulk_pop(client, 999, "m") == []
    assert client.zscore(QUEUE, "m") == 9
    assert run(client, scripts.POP_ID.lua, "m", 1, 1000, 70_000, QUEUE, UNACK) is None
    assert run(client, scripts.POP_ID.lua, "m", 1, 9, 70_000, QUEUE, UNACK) == b"body"
    # A fraction of the millisecond now + 1 is after it, as a number too.
    queue.push([DynoMessage("n", timeout_ms=1, priority=1)])
    assert queue.bulk_pop(1) == []
    clock.now_ms += 1
    assert queue.bulk_pop(1) == [DynoMessage("n")]


@pytest.mark.parametrize(
    ("lua", "expected"),
    [
        ("local n = 0 for i = 0, ARGV[1] - 1 do n = n + 1 end return n", 3),
        ("local n = 0 for i = 1, ARGV[1] do n = n + i end return n", 6),
        ("return ARGV[1] + 1", 4),
        ("return tostring(ARGV[1] * 1)", b"3"),
        ("return tostring(10 / 4)", b"2.5"),
        ("return tostring(2 ^ 53)", b"9.007199254741e+15"),
        ("return ARGV[1] .. 1", b"31"),
        ("return redis.call('ZADD', 'z', ARGV[1] * 1, 'm') + ARGV[1]", 4),
    ],
)
def test_4_arguments_are_text_and_count_as_numbers(
    client: redis.Redis, lua: str, expected: Any
) -> None:
    assert run(client, lua, "3") == expected


@pytest.mark.parametrize(
    ("lua", "expected"),
    [
        ("return {1, nil, 3}", [1]),
        ("return {nil, nil}", []),
        ("return {}", []),
        ("return 1.9", 1),
        ("return -1.9", -1),
        ("return {1.9, -1.9, '1.9'}", [1, -1, b"1.9"]),
        ("return false", None),
        ("return nil", None),
        ("return true", 1),
        ("return {1, false, 3}", [1, None, 3]),
    ],
)
def test_5_what_a_script_returns(client: redis.Redis, lua: str, expected: Any) -> None:
    assert run(client, lua) == expected


@pytest.mark.parametrize("call", ["'ZSCORE', 'z', 'm'", "'ZRANK', 'z', 'm'", "'HGET', 'h', 'f'"])
def test_6_what_is_missing_is_false(client: redis.Redis, call: str) -> None:
    lua = f"local found = redis.call({call}) return {{type(found), tostring(found == nil)}}"
    assert run(client, lua) == [b"boolean", b"false"]


def test_7_a_scan_within_a_script(client: redis.Redis) -> None:
    """A number is taken as cursor, and what comes back can be read as one; large enough for the
    hash to need more than one page. Patterns are Lua's, errors in them included.
    """
    client.hset(BODIES, mapping={f"m{n}": f"payload-{n}" for n in range(2_000)})
    page = run(client, "return redis.call('HSCAN', KEYS[1], 0)")
    assert isinstance(page[0], bytes)
    assert int(page[0]) > 0
    assert run(client, scripts.FIND.lua, "^payload%-1777$") == b"m1777"
    assert run(client, scripts.FIND.lua, "^payload-1777$") is None
    client.zadd(QUEUE, {"m3": 1})
    assert run(client, scripts.FIND_LOCAL.lua, "payload", QUEUE) == b"m3"
    with pytest.raises(redis.ResponseError, match="malformed pattern"):
        run(client, scripts.FIND.lua, "[payload")


def test_keys_need_not_be_declared(client: redis.Redis) -> None:
    """Each script names one key, the hash, and touches the others by ARGV."""
    client.zadd(UNACK, {"m": 5, "n": 6})
    client.hset(BODIES, "m", "body")
    answer = run(client, scripts.PROCESS_UNACKS.lua, UNACK, QUEUE, 2, "m", 5, "n", 6)
    assert answer == [1, 1]
    assert contents(client) == {BODIES: ("hash", {"m": "body"}), QUEUE: ("zset", [("m", 5)])}
    assert run(client, scripts.STALE.lua, QUEUE, UNACK, 2, "m", "n") == [b"n"]
    assert run(client, scripts.REMOVE.lua, "m", 1, QUEUE, UNACK) == 1
    assert run(client, scripts.REMOVE.lua, "m", 1, QUEUE, UNACK) == 0


def test_a_refusal_in_the_middle_keeps_what_was_written(client: redis.Redis) -> None:
    """No undo: the writes before it stay."""
    client.hset(BODIES, mapping={"m": "body", "n": "body"})
    with pytest.raises(redis.ResponseError, match="not a valid float"):
        run(client, scripts.PROCESS_UNACKS.lua, UNACK, QUEUE, 2, "m", 5, "n", "soon")
    assert contents(client)[QUEUE] == ("zset", [("m", 5)])
