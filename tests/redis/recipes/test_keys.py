"""The recipes use the originals' keys and texts, so that both can work on one server."""

from __future__ import annotations

from zlib import crc32

import redis

from delaylog.client.queues import DynoMessage, PriorityMessage
from tests.redis.recipes.camellia.delay_queue import CamelliaQueue
from tests.redis.recipes.connection import RedisPyConnection
from tests.redis.recipes.dyno.dyno_queue import DynoQueue
from tests.redis.recipes.rmq.topic import RmqTopic, TopicKind
from tests.redis.recipes.support import NOW_MS, HandClock, contents


def test_camellia(connection: RedisPyConnection, clock: HandClock, client: redis.Redis) -> None:
    queue = CamelliaQueue(connection, "t", namespace="ns", clock=clock)
    queue.send("body", delay_ms=5_000, msg_id="m", ttl_ms=10_000, max_retry=0)
    message, tag = "camellia_delay_queue_msg|ns|t|m", "camellia_delay_queue_active_tag|ns|t"
    body = (
        f'{{"topic":"t","msgId":"m","msg":"body","produceTime":{NOW_MS},'
        f'"triggerTime":{NOW_MS + 5_000},"expireTime":{NOW_MS + 15_000},'
        '"maxRetry":0,"retry":0,"status":1}'
    )
    assert contents(client) == {
        message: ("string", body),
        "camellia_delay_queue_waiting|{|ns|t|}": ("zset", [("m", NOW_MS + 5_000)]),
        "camellia_delay_queue_topics|ns": ("zset", [("t", NOW_MS)]),
        tag: ("string", str(NOW_MS)),
    }
    assert 15_000 + 3 * 300_000 - 5_000 < client.pttl(message) <= 15_000 + 3 * 300_000
    assert 3 * 1_800_000 - 5_000 < client.pttl(tag) <= 3 * 1_800_000
    queue.send("body", delay_ms=0, msg_id="n")
    queue.send("body", delay_ms=0, msg_id="o")
    queue.pull()
    found = contents(client)
    assert found["camellia_delay_queue_ack|{|ns|t|}"] == ("zset", [("n", NOW_MS + 30_000)])
    assert found["camellia_delay_queue_ready|{|ns|t|}"] == ("list", ["o"])


def test_dyno(connection: RedisPyConnection, clock: HandClock, client: redis.Redis) -> None:
    """A push begins with the second shard; a priority is a fraction of a millisecond."""
    queue = DynoQueue(connection, "jobs", shards=list("abc"), own_shard="b", clock=clock)
    queue.push([DynoMessage(f"m{n}", f"p{n}", timeout_ms=10 * n, priority=n) for n in range(4)])
    bodies = {
        f"m{n}": f'{{"id":"m{n}","payload":"p{n}","timeout":{10 * n},"priority":{n}}}'
        for n in range(4)
    }
    assert contents(client) == {
        "dynoQueue.MESSAGE.jobs": ("hash", bodies),
        "dynoQueue.QUEUE.jobs.b": ("zset", [("m0", NOW_MS), ("m3", NOW_MS + 30.03)]),
        "dynoQueue.QUEUE.jobs.c": ("zset", [("m1", NOW_MS + 10.01)]),
        "dynoQueue.QUEUE.jobs.a": ("zset", [("m2", NOW_MS + 20.02)]),
    }
    queue.pop(1)
    assert contents(client)["dynoQueue.UNACK.jobs.b"] == ("zset", [("m0", NOW_MS + 60_000)])


def test_rmq(connection: RedisPyConnection, clock: HandClock, client: redis.Redis) -> None:
    """A slot is the common CRC32 of the body; a prepare score ends in the retries left."""
    topic = RmqTopic(connection, "t", TopicKind.PRIORITY, slots=8, clock=clock)
    assert crc32(b"123456789") == 0xCBF43926
    topic.send(PriorityMessage("123456789", 17))
    assert contents(client) == {"t_6": ("zset", [("123456789", 17)])}
    delivery = topic.pop_any()
    prepared = NOW_MS // 1000 * 1000 + 16
    assert contents(client) == {"prepare_{t_6}": ("zset", [("123456789", prepared)])}
    while delivery is not None:
        topic.roll_back(delivery)
        delivery = topic.pop_any()
    assert contents(client) == {"dead_{t_6}": ("zset", [("123456789", NOW_MS)])}
