"""dramatiq on the delay log: what test_dramatiq_own_tests.py leaves out, and what is ours.

The workers are dramatiq's, in this process with a short idle time; one test runs its program.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import dramatiq
import dramatiq.errors
import dramatiq.worker
import pytest
from dramatiq.errors import ConnectionClosed, QueueNotFound

from delaylog.client import Client, NotReached
from delaylog.client.child_broker import free_port
from delaylog.client.job_systems.dramatiq_broker import DelaylogBroker
from tests.broker.conftest import Broker
from tests.client.job_systems.conftest import Bench
from tests.waiting import await_that

QUEUE = "default"
SHORT_LEASE = timedelta(seconds=3)
JOIN_MS = 180_000
AHEAD_MS = 3_600_000
MakeApp = Callable[[str], tuple[Any, Bench]]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def jobs(broker: Broker, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """dramatiq's global broker, on a namespace of its own."""
    monkeypatch.setattr(dramatiq.worker, "POST_PROCESS_MESSAGE_RETRY_DELAY_SECS", 0.1)
    monkeypatch.setattr(dramatiq.worker, "CONSUMER_RESTART_DELAY_SECS", 0.1)
    jobs = DelaylogBroker(broker.url, namespace=namespace)
    jobs.emit_after("process_boot")
    dramatiq.set_broker(jobs)
    yield jobs
    jobs.close()


@contextmanager
def worker(jobs: Any, threads: int = 2) -> Iterator[Any]:
    worker = dramatiq.Worker(jobs, worker_timeout=100, worker_threads=threads)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def finish(jobs: Any, worker: Any, queue: str = QUEUE) -> None:
    """Wait until every message of the queue has ended."""
    jobs.join(queue, timeout=JOIN_MS)
    worker.join()


def actor(function: Callable[..., Any], **options: Any) -> Any:
    """An actor of the present global broker."""
    return dramatiq.actor(function, **options)


def dead(client: Client, queue: str = QUEUE) -> list[str]:
    """The ids of the dead letters of a queue."""
    return [info.id for info in client.dead(queue)]


def test_actors_get_their_messages_once_each(jobs: Any, client: Client) -> None:
    got: list[Any] = []
    put = actor(lambda key, value: got.append((key, value)), actor_name="put")
    sent = [put.send(f"k{number}", value=number) for number in range(20)]
    assert {info.id for info in client.browse(QUEUE, tag="put")} == {
        message.message_id for message in sent
    }
    with worker(jobs) as running:
        finish(jobs, running)
    assert sorted(got) == sorted((f"k{number}", number) for number in range(20))
    assert client.stats(QUEUE).counts.acked == 20


def test_a_delay_is_a_due_time(jobs: Any, client: Client) -> None:
    begin = now_ms()
    run = actor(lambda: None, actor_name="run")
    far = run.send_with_options(delay=AHEAD_MS)
    info = client.get(QUEUE, far.message_id)
    assert (info.state, far.queue_name) == ("waiting", QUEUE)
    assert info.deliver_at_ms >= begin + AHEAD_MS


def test_a_message_without_retries_left_is_a_dead_letter(jobs: Any, client: Client) -> None:
    """A replay gives it all its retries again."""
    tried: list[int] = []

    def fail() -> None:
        tried.append(1)
        raise RuntimeError("always")

    sent = actor(fail, max_retries=0).send()
    with worker(jobs) as running:
        finish(jobs, running)
        assert dead(client) == [sent.message_id]
        assert client.replay(QUEUE, [sent.message_id])[0].result == "done"
        finish(jobs, running)
    assert len(tried) == 2
    assert dead(client) == [sent.message_id]


def test_a_message_older_than_its_max_age_is_a_dead_letter(jobs: Any, client: Client) -> None:
    """Its age counts from the send, so a delay that is longer than the age ends each message."""
    ran: list[str] = []
    remind = actor(ran.append, max_age=10_000)
    remind.send("young")
    old = remind.message("old")
    jobs.enqueue(old.copy(message_timestamp=now_ms() - 11_000))
    with worker(jobs) as running:
        finish(jobs, running)
    assert ran == ["young"]
    assert dead(client) == [old.message_id]


def test_a_message_of_an_unknown_actor_is_a_dead_letter(jobs: Any, client: Client) -> None:
    jobs.declare_queue("some")
    message = jobs.enqueue(dramatiq.Message("some", "nobody", (), {}, {}))
    with worker(jobs) as running:
        finish(jobs, running, "some")
    assert dead(client, "some") == [message.message_id]


@pytest.mark.parametrize(
    "members",
    [{}, {"actor_name": []}, {"options": 5}, {"options": {"eta": "soon"}}],
    ids=["none", "no name", "no options", "no eta"],
)
def test_a_message_of_another_program_does_not_stop_the_consumer(
    jobs: Any, client: Client, members: dict[str, Any]
) -> None:
    ran = threading.Event()
    run = actor(ran.set, actor_name="run")
    whole = json.loads(run.message().encode())
    foreign = client.send(QUEUE, json=whole | members if members else "not of dramatiq").id
    run.send()
    with worker(jobs):
        assert ran.wait(JOIN_MS / 1000)
        await_that(lambda: dead(client) == [foreign])


def test_a_stopped_worker_returns_what_it_has_not_begun(jobs: Any, client: Client) -> None:
    begun = threading.Event()

    def slow() -> None:
        begun.set()
        time.sleep(1)

    sleeper = actor(slow)
    for _ in range(3):
        sleeper.send()
    sleeper.send_with_options(delay=AHEAD_MS)
    with worker(jobs, threads=1):
        assert begun.wait(JOIN_MS / 1000)
    counts = client.stats(QUEUE).counts
    assert (counts.leased, counts.waiting, counts.ready + counts.acked) == (0, 1, 3)
    assert counts.ready >= 1
    (again, *_) = client.receive(QUEUE)
    assert again.attempts == 1


def test_a_worker_holds_no_more_than_its_prefetch_count(jobs: Any, client: Client) -> None:
    run = actor(lambda: None, actor_name="run")
    for _ in range(5):
        run.send()
    consumer = jobs.consume(QUEUE, prefetch=2, timeout=100)
    first, second = next(consumer), next(consumer)
    assert next(consumer) is None
    assert client.stats(QUEUE).counts.leased == 2
    consumer.ack(first)
    assert next(consumer).message_id != second.message_id
    consumer.requeue([second])
    consumer.close()
    assert client.stats(QUEUE).counts.ready == 3


def test_a_message_that_outlives_its_lease_runs_once(jobs: Any) -> None:
    jobs.keeper.lease = SHORT_LEASE
    ran: list[int] = []

    def slow() -> None:
        ran.append(1)
        time.sleep(2.5 * SHORT_LEASE.total_seconds())

    actor(slow).send()
    with worker(jobs) as running:
        finish(jobs, running)
    assert ran == [1]


@pytest.mark.parametrize("fails", [False, True])
def test_settling_is_repeated_while_the_broker_is_away_and_the_lease_is_kept(
    jobs: Any, client: Client, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    ran: list[int] = []
    asked: list[int] = []
    verb = "reject" if fails else "ack"
    settle = getattr(jobs.sdk, verb)

    def refusing(messages: Any, **options: Any) -> Any:
        asked.append(1)
        if len(asked) <= 3:
            raise NotReached("nobody listens")
        return settle(messages, **options)

    def work() -> None:
        ran.append(1)
        if fails:
            raise RuntimeError("always")

    monkeypatch.setattr(jobs.sdk, verb, refusing)
    actor(work, max_retries=0).send()
    with worker(jobs) as running:
        finish(jobs, running)
    assert (len(ran), len(asked)) == (1, 4)
    counts = client.stats(QUEUE).counts
    assert (counts.acked, counts.dead) == ((0, 1) if fails else (1, 0))


def test_a_worker_goes_on_after_the_broker_was_away(jobs: Any, broker: Broker) -> None:
    ran: list[str] = []
    run = actor(ran.append, actor_name="run")
    with worker(jobs) as running:
        run.send("before")
        finish(jobs, running)
        broker.crash()
        time.sleep(1)
        broker.start()
        run.send("after")
        finish(jobs, running)
    assert ran == ["before", "after"]


def test_the_highest_priority_is_delivered_first(jobs: Any, client: Client) -> None:
    """Among ready messages: a receive may miss one that became due milliseconds ago."""
    run = actor(lambda word: None, actor_name="run")
    for word, priority in [("low", 1), ("none", None), ("high", 9)]:
        run.send_with_options(args=(word,), broker_priority=priority)
    await_that(lambda: client.stats(QUEUE).counts.ready == 3)
    consumer = jobs.consume(QUEUE, prefetch=3, timeout=100)
    assert [next(consumer).args[0] for _ in range(3)] == ["high", "low", "none"]
    consumer.close()


def test_each_message_of_one_id_runs_and_all_are_cancelled_by_it(jobs: Any, client: Client) -> None:
    ran: list[str] = []
    run = actor(ran.append, actor_name="run")
    message = run.send("first")
    for word in ("second", "third"):
        jobs.enqueue(message.copy(args=(word,)))
    with worker(jobs) as running:
        finish(jobs, running)
    assert sorted(ran) == ["first", "second", "third"]
    for _ in range(2):
        jobs.enqueue(message, delay=AHEAD_MS)
    assert jobs.cancel(message.message_id).result == "done"
    assert client.stats(QUEUE).counts.waiting == 0


@pytest.mark.parametrize("delay", [1_234.5, 1e2, 0.5, -3.5])
def test_a_delay_with_a_fraction_is_rounded_up(jobs: Any, delay: float) -> None:
    ran_ms: list[int] = []

    def retry_once() -> None:
        ran_ms.append(now_ms())
        if len(ran_ms) == 1:
            raise dramatiq.errors.Retry("busy", delay=delay)

    begin_ms = now_ms()
    actor(retry_once).send_with_options(delay=delay)
    with worker(jobs) as running:
        finish(jobs, running)
    assert len(ran_ms) == 2
    assert ran_ms[0] - begin_ms >= delay
    assert ran_ms[1] - ran_ms[0] >= delay


@pytest.mark.parametrize(
    ("delay", "reason"),
    [
        (11 * 366 * 86_400_000, "horizon"),
        ("soon", "not 'soon'"),
        (float("inf"), "not inf"),
    ],
)
def test_a_message_whose_retry_is_refused_is_a_dead_letter_with_the_reason(
    jobs: Any, client: Client, delay: Any, reason: str
) -> None:
    def retry() -> None:
        raise dramatiq.errors.Retry("busy", delay=delay)

    sent = actor(retry).send()
    with worker(jobs) as running:
        finish(jobs, running)
    (letter,) = client.dead(QUEUE)
    assert letter.id == sent.message_id
    assert letter.reason is not None
    assert letter.reason.startswith("its retry was refused")
    assert reason in letter.reason


def test_a_message_runs_again_if_the_broker_is_away_when_its_retry_is_sent(
    broker: Broker, namespace: str
) -> None:
    jobs = DelaylogBroker(
        broker.url, namespace=namespace, lease=SHORT_LEASE, timeout=timedelta(seconds=0.5)
    )
    dramatiq.set_broker(jobs)
    ran: list[int] = []
    away = threading.Event()

    def fail_once() -> None:
        ran.append(now_ms())
        if len(ran) == 1:
            broker.crash()
            away.set()
            raise RuntimeError("its retry finds no broker")

    sent = actor(fail_once, min_backoff=1).send()
    with worker(jobs):
        assert away.wait(60)
        time.sleep(1)
        broker.start()
        await_that(lambda: len(ran) == 2, seconds=60)
        await_that(lambda: jobs.sdk.get(QUEUE, sent.message_id).state == "acked", seconds=60)
    jobs.close()


def test_joins_and_flushes(jobs: Any) -> None:
    run = actor(lambda: None, actor_name="run")
    jobs.join(QUEUE, timeout=0)
    jobs.flush_all()
    run.send()
    run.send_with_options(delay=AHEAD_MS)
    with pytest.raises(dramatiq.QueueJoinTimeout):
        jobs.join(QUEUE, timeout=200)
    jobs.flush_all()
    jobs.join(QUEUE, timeout=0)


def test_queues_are_declared_without_a_broker() -> None:
    """Actors are declared when their module is imported."""
    away = DelaylogBroker(f"delaylog://127.0.0.1:{free_port()}", timeout=timedelta(seconds=0.1))
    dramatiq.set_broker(away)
    run = actor(lambda: None, actor_name="run", queue_name="mails")
    assert (away.get_declared_queues(), away.get_declared_delay_queues()) == ({"mails"}, set())
    with pytest.raises(QueueNotFound):
        away.consume("nothing")
    for call in (run.send, lambda: away.consume("mails"), lambda: away.join("mails")):
        with pytest.raises(ConnectionClosed, match=r"127\.0\.0\.1"):
            call()
    away.close()


def test_what_a_killed_worker_had_runs_again(make_app: MakeApp) -> None:
    jobs, bench = make_app("dramatiq_app")
    options = ("dramatiq_app", "--processes", "1", "--threads", "1")
    jobs.slow.send("killed", 2)
    jobs.run.send_with_options(args=("later",), delay=1)
    with bench.worker("dramatiq", *options) as first:
        bench.at_ms("killed:begin")
        os.killpg(first.pid, signal.SIGKILL)
    with bench.worker("dramatiq", *options):
        bench.wait("killed:begin", "killed:begin", "killed:end", "later")
