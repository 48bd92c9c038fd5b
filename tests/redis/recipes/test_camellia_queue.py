"""CamelliaQueue call by call: send, pull, acknowledge, read, delete, count.

Method: one topic on a clock that stands; no scheduler but where a call needs one.
"""

from __future__ import annotations

import json

import pytest
import redis

from tests.redis.recipes.camellia.delay_queue import CamelliaQueue
from tests.redis.recipes.camellia.keys import CamelliaSettings
from tests.redis.recipes.camellia.message import DelayMessage, Status
from tests.redis.recipes.camellia.scheduler import CamelliaScheduler
from tests.redis.recipes.connection import RedisPyConnection
from tests.redis.recipes.support import NOW_MS, HandClock, contents
from tests.redis.servers import TIMEOUT_S

KEEP_MS = 300_000
TTL_MS = 3_600_000
WAITING = "camellia_delay_queue_waiting|{|ns|t|}"
READY = "camellia_delay_queue_ready|{|ns|t|}"
ACK = "camellia_delay_queue_ack|{|ns|t|}"
MSG = "camellia_delay_queue_msg|ns|t|"
TAG = "camellia_delay_queue_active_tag|ns|t"


@pytest.fixture
def queue(connection: RedisPyConnection, clock: HandClock) -> CamelliaQueue:
    return CamelliaQueue(connection, "t", namespace="ns", clock=clock)


def ids(messages: list[DelayMessage]) -> list[str]:
    return [message.msg_id for message in messages]


def stored_status(client: redis.Redis, msg_id: str) -> int:
    return int(json.loads(client.get(MSG + msg_id))["status"])


def test_keys_and_json(queue: CamelliaQueue, client: redis.Redis) -> None:
    """As the original lays them out."""
    sent = queue.send("body", delay_ms=5_000, msg_id="m", ttl_ms=10_000, max_retry=0)
    assert sent == DelayMessage(
        *("t", "m", "body", NOW_MS, NOW_MS + 5_000, NOW_MS + 15_000, 0, 0, 1)
    )
    body = (
        f'{{"topic":"t","msgId":"m","msg":"body","produceTime":{NOW_MS},'
        f'"triggerTime":{NOW_MS + 5_000},"expireTime":{NOW_MS + 15_000},'
        '"maxRetry":0,"retry":0,"status":1}'
    )
    assert contents(client) == {
        MSG + "m": ("string", body),
        WAITING: ("zset", [("m", NOW_MS + 5_000)]),
        "camellia_delay_queue_topics|ns": ("zset", [("t", NOW_MS)]),
        TAG: ("string", str(NOW_MS)),
    }
    assert 15_000 + 3 * KEEP_MS - 5_000 < client.pttl(MSG + "m") <= 15_000 + 3 * KEEP_MS
    assert 3 * 1_800_000 - 5_000 < client.pttl(TAG) <= 3 * 1_800_000


def test_defaults(queue: CamelliaQueue) -> None:
    sent = queue.send("body", delay_ms=-5, msg_id="")
    assert len(sent.msg_id) == 32
    assert int(sent.msg_id, 16)
    assert (sent.trigger_time, sent.expire_time) == (NOW_MS, NOW_MS + TTL_MS)
    assert (sent.max_retry, sent.status) == (10, Status.READY)
    with pytest.raises(ValueError, match="text"):
        queue.send("", delay_ms=0)
    with pytest.raises(ValueError, match="name"):
        CamelliaQueue(queue._calls._connection, "")


@pytest.mark.parametrize(("delay_ms", "status"), [(0, 2), (1, 2), (100, 2), (101, 1)])
def test_a_short_delay_goes_straight_to_ready(
    queue: CamelliaQueue, client: redis.Redis, delay_ms: int, status: int
) -> None:
    sent = queue.send("body", delay_ms=delay_ms, msg_id="m")
    assert (sent.status, sent.trigger_time) == (status, NOW_MS + delay_ms)
    assert client.llen(READY) == (status == 2)


def test_never_early_if_one_wants(connection: RedisPyConnection, clock: HandClock) -> None:
    settings = CamelliaSettings(early_ms=0)
    queue = CamelliaQueue(connection, "t", settings=settings, clock=clock)
    scheduler = CamelliaScheduler(connection, settings=settings, clock=clock)
    assert queue.send("body", delay_ms=1).status == Status.WAITING
    assert scheduler.run_round(NOW_MS).triggered == 0
    assert scheduler.run_round(NOW_MS + 1).triggered == 1


def test_ready_events_are_gathered(
    queue: CamelliaQueue, clock: HandClock, client: redis.Redis
) -> None:
    """One at once, those of the next 100 ms as one afterwards; waiting ones tell nothing."""
    with client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe("camellia_delay_queue_publish|ns")
        listener.get_message(timeout=TIMEOUT_S)
        queue.send("body", delay_ms=5_000)
        for _ in range(3):
            queue.send("body", delay_ms=0)
            clock.now_ms += 10
        queue.flush_events()
        clock.now_ms += 70
        queue.flush_events()
        queue.flush_events()
        client.publish("camellia_delay_queue_publish|ns", "end")
        heard = []
        while not heard or heard[-1] != b"end":
            message = listener.get_message(timeout=5)
            if message is not None:
                heard.append(message["data"])
    assert heard == [b'{"topic":"t"}'] * 2 + [b"end"]


def test_a_repeated_id_answers_the_living_message(
    queue: CamelliaQueue, clock: HandClock, client: redis.Redis
) -> None:
    """Waiting, ready or in work; even when it is overdue and nobody noticed."""
    first = queue.send("old", delay_ms=5_000, msg_id="m")
    assert queue.send("new", delay_ms=0, msg_id="m") == first
    clock.now_ms += 10 * TTL_MS
    assert queue.send("new", delay_ms=0, msg_id="m") == first
    assert client.llen(READY) == 0
    queue.send("old", delay_ms=0, msg_id="n")
    [taken] = queue.pull()
    assert queue.send("new", delay_ms=0, msg_id="n") == taken


@pytest.mark.parametrize("end", ["ack", "delete"])
def test_a_repeated_id_replaces_an_ended_message(
    queue: CamelliaQueue, client: redis.Redis, end: str
) -> None:
    """And stands in one queue only, though the ended one had not been swept yet."""
    for delay_ms in (0, 5_000, 0):
        queue.send("old", delay_ms=delay_ms, msg_id="m")
        getattr(queue, end)("m")
        assert queue.send("new", delay_ms=0, msg_id="m").msg == "new"
        assert (client.llen(READY), client.zcard(WAITING)) == (1, 0)
        assert ids(queue.pull(9)) == ["m"]
        queue.ack("m")


def test_a_text_that_is_no_message_is_replaced(queue: CamelliaQueue, client: redis.Redis) -> None:
    client.set(MSG + "m", "nonsense")
    assert queue.get("m") is None
    assert queue.send("new", delay_ms=0, msg_id="m").msg == "new"
    assert ids(queue.pull(9)) == ["m"]


def test_pull_takes_the_oldest_and_counts_the_delivery(
    queue: CamelliaQueue, client: redis.Redis
) -> None:
    for n in range(4):
        queue.send("body", delay_ms=0, msg_id=f"m{n}")
    [first] = queue.pull()
    assert (first.msg_id, first.status, first.retry) == ("m0", Status.CONSUMING, 1)
    assert queue.get("m0") == first
    assert client.zscore(ACK, "m0") == NOW_MS + 30_000
    assert ids(queue.pull(2, ack_timeout_ms=500)) == ["m1", "m2"]
    assert client.zscore(ACK, "m2") == NOW_MS + 500
    assert ids(queue.pull(-1)) == ["m3"]
    assert queue.pull(1_000) == []


def test_pull_of_more_than_a_page(queue: CamelliaQueue) -> None:
    for n in range(250):
        queue.send("body", delay_ms=0, msg_id=f"m{n}")
    assert ids(queue.pull(1_000)) == [f"m{n}" for n in range(250)]


def test_pull_drops_what_has_ended_and_tries_again(
    queue: CamelliaQueue, client: redis.Redis
) -> None:
    for n in range(4):
        queue.send("body", delay_ms=0, msg_id=f"m{n}")
    queue.delete("m0")
    client.delete(MSG + "m1")
    assert ids(queue.pull(2)) == ["m2", "m3"]
    assert client.zrange(ACK, 0, -1) == [b"m2", b"m3"]


def test_deliveries_end(queue: CamelliaQueue, client: redis.Redis) -> None:
    """One more than max_retry; only the next pull notices."""
    queue.send("body", delay_ms=0, msg_id="m", max_retry=2)
    for attempt in range(1, 4):
        [taken] = queue.pull()
        assert taken.retry == attempt
        assert queue.nack("m")
        assert queue.get("m").status == Status.CONSUMING  # type: ignore[union-attr]
    assert queue.pull() == []
    assert queue.get("m").status == Status.EXHAUSTED  # type: ignore[union-attr]
    assert KEEP_MS - 5_000 < client.pttl(MSG + "m") <= KEEP_MS
    assert client.exists(ACK, READY) == 0


@pytest.mark.parametrize(("deliveries", "status"), [(0, Status.EXPIRED), (1, Status.EXHAUSTED)])
def test_time_to_live_ends(
    queue: CamelliaQueue, clock: HandClock, client: redis.Redis, deliveries: int, status: Status
) -> None:
    queue.send("body", delay_ms=0, msg_id="m", ttl_ms=1_000)
    for _ in range(deliveries):
        queue.pull()
        queue.nack("m")
    clock.now_ms += 1_000
    assert not queue.get("m").ended  # type: ignore[union-attr]
    clock.now_ms += 1
    assert queue.get("m").status == status  # type: ignore[union-attr]
    assert stored_status(client, "m") == status
    assert queue.pull() == []
    assert not queue.delete("m")


def test_ack_ends_it_in_any_state(queue: CamelliaQueue, client: redis.Redis) -> None:
    assert not queue.ack("none")
    for delay_ms in (0, 5_000):
        queue.send("body", delay_ms=delay_ms, msg_id="m")
        assert queue.ack("m")
        assert stored_status(client, "m") == Status.CONSUMED
    queue.delete("m")
    assert queue.ack("m")
    assert client.pttl(MSG + "m") <= KEEP_MS
    queue.send("body", delay_ms=0, msg_id="n")
    queue.pull(9)
    assert queue.ack("n")
    assert client.exists(ACK) == 0


def test_nack_gives_back_what_is_in_work_only(queue: CamelliaQueue, client: redis.Redis) -> None:
    queue.send("body", delay_ms=0, msg_id="m")
    queue.send("body", delay_ms=0, msg_id="n")
    assert not queue.nack("m")
    assert not queue.nack("none")
    queue.pull()
    assert queue.nack("m")
    assert not queue.nack("m")
    # At the end of the line.
    assert client.lrange(READY, 0, -1) == [b"m", b"n"]
    assert ids(queue.pull(2)) == ["n", "m"]


def test_delete_keeps_it_to_be_read(queue: CamelliaQueue, client: redis.Redis) -> None:
    queue.send("body", delay_ms=5_000, msg_id="m")
    assert queue.delete("m")
    assert queue.get("m").status == Status.DELETED  # type: ignore[union-attr]
    assert KEEP_MS - 5_000 < client.pttl(MSG + "m") <= KEEP_MS
    assert client.zcard(WAITING) == 1
    assert not queue.delete("m")
    assert not queue.delete("none")


def test_delete_with_release_leaves_nothing(queue: CamelliaQueue, client: redis.Redis) -> None:
    """But the entry of one in work, which the timeout scan drops."""
    queue.send("body", delay_ms=5_000, msg_id="m")
    queue.send("body", delay_ms=0, msg_id="n")
    queue.send("body", delay_ms=0, msg_id="o")
    queue.pull()
    for msg_id in "mno":
        assert queue.delete(msg_id, release=True)
        assert queue.get(msg_id) is None
    assert set(contents(client)) == {ACK, TAG, "camellia_delay_queue_topics|ns"}
    assert not queue.delete("m", release=True)
    queue.send("body", delay_ms=5_000, msg_id="m")
    queue.delete("m")
    assert not queue.delete("m", release=True)
    assert client.exists(MSG + "m", WAITING) == 0


def test_topic_info(queue: CamelliaQueue) -> None:
    """Both borders count."""
    assert queue.topic_info().waiting_buckets["sizeOf0To1min"] == 0
    minute, hour, day = 60_000, 3_600_000, 86_400_000
    delays = [500, minute, 10 * minute, 30 * minute, hour, 6 * hour, day, 7 * day, 30 * day]
    for delay_ms in [*delays, 31 * day]:
        queue.send("body", delay_ms=delay_ms)
    for _ in range(3):
        queue.send("body", delay_ms=0)
    queue.pull()
    info = queue.topic_info()
    assert (info.topic, info.waiting, info.ready, info.ack) == ("t", 10, 2, 1)
    assert info.waiting_buckets == {
        "sizeOf0To1min": 2,
        "sizeOf1minTo10min": 2,
        "sizeOf10minTo30min": 2,
        "sizeOf30minTo1hour": 2,
        "sizeOf1hourTo6hour": 2,
        "sizeOf6hourTo1day": 2,
        "sizeOf1dayTo7day": 2,
        "sizeOf7dayTo30day": 2,
        "sizeOf30dayToInfinite": 2,
    }


def test_use_is_noted_now_and_then(
    queue: CamelliaQueue, clock: HandClock, client: redis.Redis
) -> None:
    queue.get("none")
    clock.now_ms += 29_999
    queue.pull()
    assert client.get(TAG) == str(NOW_MS).encode()
    clock.now_ms += 1
    queue.ack("none")
    assert client.get(TAG) == str(clock.now_ms).encode()
