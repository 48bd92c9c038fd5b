"""CamelliaScheduler: the scans, their locks, topics that are forgotten.

Method: rounds by hand on a clock that stands.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.redis.recipes.camellia.delay_queue import CamelliaQueue
from tests.redis.recipes.camellia.message import Status
from tests.redis.recipes.camellia.scheduler import CamelliaScheduler, Round
from tests.redis.recipes.connection import Argument, RedisPyConnection
from tests.redis.recipes.support import NOW_MS, FaultyConnection, HandClock, contents
from tests.redis.servers import TIMEOUT_S

WAITING = "camellia_delay_queue_waiting|{|ns|t|}"
READY = "camellia_delay_queue_ready|{|ns|t|}"
ACK = "camellia_delay_queue_ack|{|ns|t|}"
MSG = "camellia_delay_queue_msg|ns|t|"
TOPICS = "camellia_delay_queue_topics|ns"
PARKED = "camellia_delay_queue_topics_tmp|ns"
CHANNEL = "camellia_delay_queue_publish|ns"
TRIGGER_LOCK = "camellia_delay_queue_check_trigger|ns|t|~lock"
PERIOD_MS = 600_000


@pytest.fixture
def queue(connection: RedisPyConnection, clock: HandClock) -> CamelliaQueue:
    return CamelliaQueue(connection, "t", namespace="ns", clock=clock)


@pytest.fixture
def scheduler(connection: RedisPyConnection, clock: HandClock) -> CamelliaScheduler:
    return CamelliaScheduler(connection, namespace="ns", clock=clock)


class Listener:
    """Counts the events of the namespace."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._pubsub = client.pubsub(ignore_subscribe_messages=True)
        self._pubsub.subscribe(CHANNEL)
        self._pubsub.get_message(timeout=TIMEOUT_S)

    def heard(self) -> list[bytes]:
        """What came since the last call."""
        self._client.publish(CHANNEL, "end")
        events: list[bytes] = []
        while True:
            message = self._pubsub.get_message(timeout=5)
            if message is None:
                continue
            if message["data"] == b"end":
                return events
            events.append(message["data"])

    def close(self) -> None:
        self._pubsub.close()


@pytest.fixture
def listener(client: redis.Redis) -> Iterator[Listener]:
    made = Listener(client)
    yield made
    made.close()


def test_due_messages_become_ready(
    queue: CamelliaQueue, scheduler: CamelliaScheduler, client: redis.Redis, listener: Listener
) -> None:
    """Up to 100 ms before their time; pages of 100 until none is left."""
    for n in range(250):
        queue.send("body", delay_ms=1_000, msg_id=f"m{n:03}")
    queue.send("body", delay_ms=1_001, msg_id="later")
    assert scheduler.run_round(NOW_MS + 899) == Round()
    assert listener.heard() == []
    assert scheduler.run_round(NOW_MS + 900) == Round(triggered=250)
    assert listener.heard() == [b'{"topic":"t"}']
    assert client.zrange(WAITING, 0, -1) == [b"later"]
    # Here the order of the times is kept: the oldest is at the right end.
    pulled = [message.msg_id for message in queue.pull(1_000)]
    assert pulled == [f"m{n:03}" for n in range(250)]
    assert contents(client)[MSG + "later"][1].endswith('"status":1}')


def test_what_is_ready_still_shows_as_waiting(
    queue: CamelliaQueue, scheduler: CamelliaScheduler
) -> None:
    """As in the original; the pull writes 3."""
    queue.send("body", delay_ms=1_000, msg_id="m")
    scheduler.run_round(NOW_MS + 1_000)
    assert queue.get("m").status == Status.WAITING  # type: ignore[union-attr]
    assert queue.pull()[0].status == Status.CONSUMING


def test_what_is_not_acknowledged_comes_back(
    queue: CamelliaQueue,
    scheduler: CamelliaScheduler,
    clock: HandClock,
    client: redis.Redis,
    listener: Listener,
) -> None:
    queue.send("body", delay_ms=0, msg_id="m")
    queue.send("body", delay_ms=0, msg_id="n")
    queue.pull(2, ack_timeout_ms=500)
    queue.ack("n")
    listener.heard()
    assert scheduler.run_round(NOW_MS + 499).timed_out == 0
    assert scheduler.run_round(NOW_MS + 500) == Round(timed_out=1)
    # Advised against the original, which tells nobody.
    assert listener.heard() == [b'{"topic":"t"}']
    assert client.lrange(READY, 0, -1) == [b"m"]
    clock.now_ms += 500
    assert queue.get("m").status == Status.CONSUMING  # type: ignore[union-attr]
    assert queue.pull()[0].retry == 2


def test_an_ack_timeout_after_the_time_to_live_ends_it(
    queue: CamelliaQueue, scheduler: CamelliaScheduler, client: redis.Redis
) -> None:
    queue.send("body", delay_ms=0, msg_id="m", ttl_ms=100)
    queue.pull(1, ack_timeout_ms=500)
    assert scheduler.run_round(NOW_MS + 500) == Round(ended=1)
    assert queue.get("m").status == Status.EXHAUSTED  # type: ignore[union-attr]
    assert client.exists(ACK, READY) == 0


def test_ended_messages_leave_their_queues(
    queue: CamelliaQueue, scheduler: CamelliaScheduler, client: redis.Redis
) -> None:
    """From waiting at their time, from ready at once, from ack at their deadline."""
    queue.send("body", delay_ms=1_000, msg_id="deleted while waiting")
    queue.delete("deleted while waiting")
    for n in range(350):
        queue.send("body", delay_ms=0, msg_id=f"m{n}")
    queue.pull(2)
    queue.delete("m0")
    queue.delete("m1", release=True)
    for n in range(2, 350, 2):
        queue.delete(f"m{n}")
    client.lpush(READY, "nothing of it is stored")
    assert scheduler.run_round(NOW_MS) == Round(ended=175)
    assert [int(msg_id[1:]) for msg_id in client.lrange(READY, 0, -1)] == list(range(349, 2, -2))
    assert scheduler.run_round(NOW_MS) == Round()
    assert scheduler.run_round(NOW_MS + 1_000) == Round(ended=1)
    assert scheduler.run_round(NOW_MS + 30_000) == Round(ended=2)
    assert client.exists(WAITING, ACK) == 0


def test_a_second_scheduler_leaves_what_is_locked(
    queue: CamelliaQueue,
    scheduler: CamelliaScheduler,
    connection: RedisPyConnection,
    client: redis.Redis,
) -> None:
    """A lock is a key with a time; a round gives all of them back."""
    queue.send("body", delay_ms=1_000, msg_id="m")
    client.set(TRIGGER_LOCK, "another", px=600_000)
    assert scheduler.run_round(NOW_MS + 1_000) == Round(locked_out=1)
    assert client.get(TRIGGER_LOCK) == b"another"
    client.delete(TRIGGER_LOCK)
    assert scheduler.run_round(NOW_MS + 1_000) == Round(triggered=1)
    assert client.keys("*lock") == []


class LockWatch:
    """Sees the locks that a round takes, and lets time pass at each page."""

    def __init__(self, inner: RedisPyConnection, client: redis.Redis, clock: HandClock) -> None:
        self.inner = inner
        self.client = client
        self.clock = clock
        self.taken: list[tuple[str, int]] = []
        self.ttls: list[int] = []
        """Of the lock of the first scan, at each of its pages."""
        self.steal = False

    def execute(self, *args: Argument) -> object:
        if args[0] == "SET" and "NX" in args and str(args[1]).endswith("~lock"):
            reply = self.inner.execute(*args)
            self.taken.append((str(args[1]), self.client.pttl(str(args[1]))))
            return reply
        if args[0] == "ZRANGEBYSCORE":
            self.ttls.append(self.client.pttl(TRIGGER_LOCK))
            self.clock.now_ms += 600
            for key in self.client.keys("*~lock"):
                self.client.pexpire(key, 100_000)
                if self.steal:
                    self.client.set(key, "another")
        return self.inner.execute(*args)

    def pipeline(self, commands: list[list[Argument]]) -> list[object]:
        return self.inner.pipeline(commands)


def test_a_lock_is_renewed_while_a_scan_goes_on(
    queue: CamelliaQueue, connection: RedisPyConnection, client: redis.Redis, clock: HandClock
) -> None:
    for n in range(500):
        queue.send("body", delay_ms=1_000, msg_id=f"m{n}")
    watch = LockWatch(connection, client, clock)
    scheduler = CamelliaScheduler(watch, namespace="ns", clock=clock)
    assert scheduler.run_round(NOW_MS + 1_000) == Round(triggered=500)
    assert [key.split("check_")[1] for key, _ in watch.taken] == [
        "trigger|ns|t|~lock",
        "timeout|ns|t|~lock",
        "expire|ns|t|~lock",
    ]
    assert all(0 < ttl_ms <= 5_000 for _, ttl_ms in watch.taken)
    # 600 ms a page: renewed to 5 s before each second one, from the 100 s that the watch gave it.
    assert [ttl_ms <= 5_000 for ttl_ms in watch.ttls[:6]] == [True, False] * 3
    assert client.keys("*~lock") == []


def test_a_scan_stops_when_its_lock_is_lost(
    queue: CamelliaQueue, connection: RedisPyConnection, client: redis.Redis, clock: HandClock
) -> None:
    """It asks every second; what is left is for the new holder. Another's lock is not released."""
    for n in range(500):
        queue.send("body", delay_ms=1_000, msg_id=f"m{n}")
    watch = LockWatch(connection, client, clock)
    watch.steal = True
    done = CamelliaScheduler(watch, namespace="ns", clock=clock).run_round(NOW_MS + 1_000)
    assert done.triggered == 200
    assert client.zcard(WAITING) == 300
    assert client.get(TRIGGER_LOCK) == b"another"


def test_unused_topics_are_parked_and_then_dropped(
    queue: CamelliaQueue, scheduler: CamelliaScheduler, clock: HandClock, client: redis.Redis
) -> None:
    """Thirty minutes empty and unused, looked at every ten; and scanned all the time."""
    tag = "camellia_delay_queue_inactive_tag|ns|t"
    queue.send("body", delay_ms=0, msg_id="m")
    queue.pull()
    queue.ack("m")
    assert scheduler.run_round(NOW_MS) == Round()
    for minutes in (10, 20):
        assert scheduler.run_round(NOW_MS + minutes * 60_000) == Round()
    assert scheduler.run_round(NOW_MS + 3 * PERIOD_MS - 1) == Round()
    assert scheduler.run_round(NOW_MS + 3 * PERIOD_MS) == Round(parked=1)
    assert (client.zcard(TOPICS), client.zscore(PARKED, "t")) == (0, NOW_MS + 3 * PERIOD_MS)
    assert client.get(tag) == str(NOW_MS + 3 * PERIOD_MS).encode()
    assert scheduler.run_round(NOW_MS + 4 * PERIOD_MS) == Round(dropped=1)
    assert set(contents(client)) == {MSG + "m"}


def test_a_parked_topic_comes_back_when_it_is_used(
    queue: CamelliaQueue, scheduler: CamelliaScheduler, clock: HandClock, client: redis.Redis
) -> None:
    queue.send("body", delay_ms=0, msg_id="m")
    queue.pull()
    queue.ack("m")
    scheduler.run_round(NOW_MS)
    assert scheduler.run_round(NOW_MS + 3 * PERIOD_MS).parked == 1
    clock.now_ms = NOW_MS + 3 * PERIOD_MS + 5
    queue.get("m")
    assert scheduler.run_round(NOW_MS + 4 * PERIOD_MS) == Round()
    assert client.zscore(TOPICS, "t") == NOW_MS + 4 * PERIOD_MS
    assert client.exists(PARKED, "camellia_delay_queue_inactive_tag|ns|t") == 0
    # A send brings it back at once.
    client.zadd(PARKED, {"t": 5})
    client.delete(TOPICS)
    queue.send("body", delay_ms=5_000)
    assert client.zscore(TOPICS, "t") == clock.now_ms
    assert client.exists(PARKED) == 0


def test_a_topic_with_messages_stays(
    queue: CamelliaQueue, scheduler: CamelliaScheduler, client: redis.Redis
) -> None:
    queue.send("body", delay_ms=90 * 86_400_000)
    scheduler.run_round(NOW_MS)
    assert scheduler.run_round(NOW_MS + 30 * 86_400_000) == Round()
    assert client.zscore(TOPICS, "t") == NOW_MS


def test_parked_topics_are_scanned(
    queue: CamelliaQueue, scheduler: CamelliaScheduler, client: redis.Redis
) -> None:
    queue.send("body", delay_ms=1_000)
    client.rename(TOPICS, PARKED)
    assert scheduler.run_round(NOW_MS + 1_000).triggered == 1


def test_many_topics(
    scheduler: CamelliaScheduler, connection: RedisPyConnection, clock: HandClock
) -> None:
    """More than a page of the topic set."""
    for n in range(205):
        CamelliaQueue(connection, f"t{n}", namespace="ns", clock=clock).send("b", delay_ms=500)
        clock.now_ms += 1
    assert scheduler.run_round(clock.now_ms + 500).triggered == 205


def test_a_lost_answer_repeats_at_worst(
    queue: CamelliaQueue, connection: RedisPyConnection, clock: HandClock
) -> None:
    """Each call of a round broken once after it was carried out: nothing is lost."""
    for n in range(5):
        queue.send("body", delay_ms=1_000, msg_id=f"m{n}")
    for broken in range(1, 30):
        faulty = BreakOne(connection, broken)
        CamelliaScheduler(faulty, namespace="ns", clock=clock).run_round(NOW_MS + 1_000)
        # A lock whose answer was lost is taken by nobody until its time is over.
        for lock in connection.execute("KEYS", "*~lock"):
            connection.execute("DEL", lock)
    CamelliaScheduler(connection, namespace="ns", clock=clock).run_round(NOW_MS + 1_000)
    assert {message.msg_id for message in queue.pull(100)} == {f"m{n}" for n in range(5)}


class BreakOne(FaultyConnection):
    """Loses the answer of the call of this number."""

    def __init__(self, inner: RedisPyConnection, number: int) -> None:
        super().__init__(inner)
        self.number = number
        self.carried_out = True

    def _call(self, call: object) -> object:
        self.breaks = 1 if self.calls + 1 == self.number else 0
        return super()._call(call)
