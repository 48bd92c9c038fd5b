"""The checks that Dyno-queues' own tests make.

Method: the clock is moved by hand but where threads compete; those wait for what must come, never
for a length of time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
import redis

from delaylog.client.queues import DynoMessage
from tests.redis.recipes.clock import wall_clock_ms
from tests.redis.recipes.connection import RedisPyConnection
from tests.redis.recipes.dyno.dyno_queue import DynoQueue
from tests.redis.recipes.support import HandClock, contents
from tests.redis.servers import RedisServer

BODIES = "dynoQueue.MESSAGE.q"


@pytest.fixture
def queue(connection: RedisPyConnection, clock: HandClock) -> DynoQueue:
    return DynoQueue(
        connection,
        "q",
        shards=["a"],
        own_shard="a",
        unack_ms=1_000,
        clock=clock,
        sleep=clock.sleep,
    )


def test_all_of_it(queue: DynoQueue, client: redis.Redis, clock: HandClock) -> None:
    """Ten of priority 10..1: peek and pop agree, the lowest first; after the unack time the same
    ten in the same order; acknowledged once; nothing is left.
    """
    queue.push([DynoMessage(str(n), f"Hello World-{n}", priority=10 - n) for n in range(10)])
    assert queue.size() == client.hlen(BODIES) == 10
    expected = [str(n) for n in reversed(range(10))]
    peeked = queue.peek(10)
    assert [message.id for message in peeked] == expected
    assert [message.priority for message in peeked] == list(range(1, 11))

    popped = []
    while taken := queue.pop(1):
        popped += taken
        clock.now_ms += 1
    assert [message.id for message in popped] == expected
    assert (queue.size(), queue.peek(10)) == (0, [])

    clock.now_ms += 1_000
    queue.process_unacks()
    assert queue.size() == 10
    again = queue.pop(10)
    assert [message.id for message in again] == expected

    for message in again:
        assert queue.ack(message.id)
        assert not queue.ack(message.id)
    assert contents(client) == {}


def test_a_timeout_is_kept(queue: DynoQueue, clock: HandClock) -> None:
    queue.push([DynoMessage("x", "Hello World", timeout_ms=50, priority=0)])
    assert queue.size() == 1
    assert queue.peek(1) == queue.pop(1) == []
    clock.now_ms += 50
    [taken] = queue.pop(1, wait_ms=1_000)
    assert (taken.id, taken.payload) == ("x", "Hello World")
    clock.now_ms += 1_000
    queue.process_unacks()
    assert queue.pop(1) == [taken]


def test_a_timeout_is_moved(queue: DynoQueue, clock: HandClock) -> None:
    queue.push([DynoMessage("x", "p", timeout_ms=20_000)])
    assert queue.pop(1) == []
    assert queue.set_timeout("x", 1)
    [taken] = queue.pop(1, wait_ms=200)
    assert taken.timeout_ms == 1
    assert not queue.set_timeout("x", 1)
    assert clock.slept_ms == []


def test_clear_empties(queue: DynoQueue, client: redis.Redis) -> None:
    queue.push([DynoMessage(str(n)) for n in range(10)])
    assert queue.size() == 10
    queue.clear()
    assert queue.size() == 0
    assert client.hlen(BODIES) == 0


def test_an_empty_pop_of_a_second(connection: RedisPyConnection) -> None:
    """On the real clock."""
    queue = DynoQueue(connection, "q", shards=["a"], own_shard="a")
    start_ms = wall_clock_ms()
    assert queue.pop(1, wait_ms=1_000) == []
    assert wall_clock_ms() - start_ms >= 1_000
    assert queue.prefetch_wanted == 0


def test_each_message_once_among_many_hands(endpoint: RedisServer) -> None:
    """10,000 messages, three producers, two consumers of 100 that share one queue object, with an
    unack time that never ends.
    """
    count, producers = 10_000, 3
    received: Counter[str] = Counter()
    guard = threading.Lock()
    failures: list[BaseException] = []

    with endpoint.client() as client:
        client.flushall()
        queue = DynoQueue(RedisPyConnection(client), "q", shards=["a"], own_shard="a")

        def produce(first: int) -> None:
            numbers = list(range(first, count, producers))
            for at in range(0, len(numbers), 50):
                queue.push([DynoMessage(f"m{n}", f"p{n}") for n in numbers[at : at + 50]])

        def consume() -> None:
            while True:
                with guard:
                    if received.total() >= count:
                        return
                taken = queue.pop(100, wait_ms=10)
                for at in range(0, len(taken), 25):
                    queue.ack_all(taken[at : at + 25])
                with guard:
                    received.update(message.id for message in taken)

        def guarded(target: object, *args: object) -> None:
            try:
                target(*args)  # type: ignore[operator]
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=guarded, args=(produce, n)) for n in range(producers)]
        threads += [threading.Thread(target=guarded, args=(consume,), daemon=True)]
        threads += [threading.Thread(target=guarded, args=(consume,), daemon=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert failures == []
        assert len(received) == count
        assert set(received.values()) == {1}
        # An id that both consumers had looked up is put into unack again by the slower one, whose
        # miss does not take it back; it is stale, and dropped once its time is up.
        later = DynoQueue(
            RedisPyConnection(client),
            "q",
            shards=["a"],
            own_shard="a",
            clock=lambda: int(time.time() * 1000) + 3_600_000,
        )
        for _ in range(count // 1000):
            later.process_unacks()
        assert later.pop(1) == []
        assert contents(client) == {}
