"""Bindings that processes share: durable ones stay, transient ones must be renewed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import delaylog
from delaylog.client._sync.surface import QueueClient
from delaylog.client.errors import api_error
from delaylog.client.job_systems.kombu_bindings import Binding, Bindings
from delaylog.client.job_systems.tasks import topic_of

DURABLE = Binding("orders", "new", "q1", transient=False)
TRANSIENT = Binding("orders", "new", "q2", transient=True)


EVENTS = "celeryev.6f9619ff-8b86-4011-b42d-00c04fc964ff"


class Seconds:
    """The clock by which bindings are read again."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> delaylog.ManualClock:
    return delaylog.ManualClock()


@pytest.fixture
def queue(tmp_path: Path, clock: delaylog.ManualClock) -> Iterator[QueueClient]:
    with delaylog.open(tmp_path, clock=clock, fsync="never") as queue:
        yield queue


def found(queue: QueueClient, exchange: str = "orders") -> list[str]:
    """As another process sees it."""
    return sorted(each.queue for each in Bindings(queue).of(exchange))


def test_other_processes_see_what_is_bound(queue: QueueClient) -> None:
    assert found(queue) == []
    bindings = Bindings(queue)
    for binding in (DURABLE, TRANSIENT, DURABLE, Binding("other", "new", "q3", False)):
        bindings.add(binding)
    assert found(queue) == ["q1", "q2"]
    bindings.remove(TRANSIENT)
    bindings.remove(TRANSIENT)
    assert found(queue) == ["q1"]


def test_a_queue_is_unbound_from_what_other_processes_have_bound_it_to(queue: QueueClient) -> None:
    """Only that queue: another one may have the name of an exchange."""
    binder = Bindings(queue)
    for exchange, name in (("orders", "q1"), ("mails", "q1"), ("orders", "orders"), ("q1", "q3")):
        binder.add(Binding(exchange, "new", name, transient=False))
    Bindings(queue).remove_queue("q1")
    assert found(queue) == ["orders"]
    assert found(queue, "mails") == []
    assert found(queue, "q1") == ["q3"]
    Bindings(queue).remove_queue("unknown")


def test_a_transient_binding_ends_when_its_process_does_not_renew_it(
    queue: QueueClient, clock: delaylog.ManualClock
) -> None:
    bindings = Bindings(queue)
    bindings.add(DURABLE)
    bindings.add(TRANSIENT)
    clock.advance(timedelta(seconds=40))
    bindings.renew()
    clock.advance(timedelta(seconds=40))
    assert found(queue) == ["q1", "q2"]
    clock.advance(timedelta(seconds=40))
    assert found(queue) == ["q1"]
    clock.advance(timedelta(days=365))
    assert found(queue) == ["q1"]


def test_a_durable_binding_is_within_a_low_horizon_and_is_renewed_for_ever(
    tmp_path: Path, clock: delaylog.ManualClock
) -> None:
    """Any process that has a transient queue renews it, and it is listed all the time."""
    with delaylog.open(tmp_path, clock=clock, fsync="never") as queue:
        queue.put_topic("kombu.bindings", delaylog.TopicSettings(quota={"horizon_ms": 86_400_000}))
        Bindings(queue).add(DURABLE)
        worker = Bindings(queue)
        worker.add(TRANSIENT)
        for _ in range(3):
            clock.advance(timedelta(days=1))
            assert found(queue) == ["q1"]
            due = queue.receive("kombu.bindings", max=9)
            assert found(queue) == ["q1"], "also while it is sent again"
            queue.release(due)
            worker.tend()
            assert found(queue) == ["q1", "q2"]
        assert queue.stats("kombu.bindings").counts.ready == 0
        Bindings(queue).remove(DURABLE)
        assert found(queue) == ["q2"]


def test_queues_of_living_processes_outlive_a_broker_that_was_away(
    queue: QueueClient, clock: delaylog.ManualClock
) -> None:
    """Nobody could renew for an hour. The first process that tends must not remove the others'."""
    first, second = Bindings(queue), Bindings(queue)
    for bindings, name in ((first, "q1"), (second, "q2")):
        bindings.hold_queue(name)
        bindings.add(Binding("orders", "new", name, transient=True))
        queue.send(name, "unread")
    clock.advance(timedelta(hours=1))
    first.tend()
    assert found(queue) == ["q1", "q2"]
    clock.advance(timedelta(seconds=15))
    second.tend()
    for _ in range(10):
        clock.advance(timedelta(seconds=15))
        first.tend()
        second.tend()
    assert queue.stats("q2").counts.ready == 1
    assert found(queue) == ["q1", "q2"]


def test_the_queues_of_a_dead_process_are_removed_by_another_one(
    queue: QueueClient, clock: delaylog.ManualClock
) -> None:
    """Their bindings too; not the queue that another process holds, nor one that is durable."""
    dead, living = Bindings(queue), Bindings(queue)
    for bindings, names in ((dead, (EVENTS, "shared")), (living, ("shared", "q4"))):
        for name in names:
            bindings.hold_queue(name)
            bindings.add(Binding("orders", "new", name, transient=True))
    dead.add(DURABLE)
    for _ in range(5):
        for binding in Bindings(queue).of("orders"):
            queue.send(binding.queue, "broadcast")
        clock.advance(timedelta(seconds=40))
        living.tend()
    assert [topic.topic for topic in queue.topics()] == ["kombu.bindings", "q1", "q4", "shared"]
    assert found(queue) == ["q1", "q4", "shared"]
    assert queue.stats("shared").counts.ready == 5
    counts = queue.stats("kombu.bindings").counts
    assert (counts.ready, counts.leased, counts.dead) == (0, 0, 0)


def test_what_is_sent_to_a_deleted_queue_is_removed(
    queue: QueueClient, clock: delaylog.ManualClock
) -> None:
    """A reply may come after its reader has gone, and creates the topic anew."""
    reader, worker = Bindings(queue), Bindings(queue)
    worker.hold_queue("q1")
    reader.hold_queue(EVENTS)
    reader.leave_queue(EVENTS)
    queue.send(EVENTS, "a late reply")
    for _ in range(2):
        clock.advance(timedelta(seconds=61))
        reader.tend()
        assert EVENTS in [topic.topic for topic in queue.topics()]
        worker.tend()
    assert [topic.topic for topic in queue.topics()] == ["kombu.bindings"]


SURROGATE = json.dumps({"exchange": "", "routing_key": "", "queue": "\ud800", "transient": True})


@pytest.mark.parametrize("body", ["no JSON", "[1]", '{"exchange": ""}', SURROGATE])
def test_a_message_of_another_program_becomes_a_dead_letter(queue: QueueClient, body: str) -> None:
    """It must not end the thread that extends leases."""
    queue.send("kombu.bindings", body)
    bindings = Bindings(queue)
    bindings.add(TRANSIENT)
    bindings.tend()
    assert [each.body for each in queue.dead("kombu.bindings", bodies=True)] == [body.encode()]


@pytest.mark.parametrize(
    "body",
    [
        "no JSON",
        "[1]",
        '{"exchange": ""}',
        '{"exchange": "orders", "routing_key": 5, "queue": "q9", "transient": false}',
        "[" * 200_000,
    ],
    ids=["text", "list", "incomplete", "another type", "deep"],
)
def test_a_message_of_another_program_stops_no_routing(queue: QueueClient, body: str) -> None:
    """It may have the tags of a binding."""
    bindings = Bindings(queue)
    bindings.add(DURABLE)
    (tags,) = [each.tags for each in queue.browse("kombu.bindings")]
    queue.send("kombu.bindings", body, tags=list(tags), delay=timedelta(days=1))
    assert found(queue) == ["q1"]
    Bindings(queue).remove_queue("q1")
    assert found(queue) == []


def orders_to_drop(queue: QueueClient, binding: Binding, message_id: str | None = None) -> None:
    """Send what ends a binding, as any sender of the namespace can, and tend."""
    queue.send(topic_of(binding.queue), "an order")
    body, in_doubt = json.dumps(asdict(binding)), {"in-doubt": "1"}
    queue.send("kombu.bindings", body, id=message_id or binding.id, headers=in_doubt)
    bindings = Bindings(queue)
    bindings.add(TRANSIENT)
    bindings.tend()


@pytest.mark.parametrize(
    "name",
    ["payments", "tenant-6f9619ff-8b86-4011-b42d-00c04fc964ff", f"{EVENTS}.orders", "pidbox"],
)
def test_a_sender_has_no_topic_of_others_removed(queue: QueueClient, name: str) -> None:
    """Also not by a worker that may remove topics."""
    orders_to_drop(queue, Binding("", name, name, transient=True))
    assert queue.stats(name).counts.ready == 1
    counts = queue.stats("kombu.bindings").counts
    assert (counts.ready, counts.leased, counts.dead) == (0, 0, 0)


@pytest.mark.parametrize(
    ("binding", "message_id"),
    [
        (Binding("", EVENTS, EVENTS, transient=True), "mine"),
        (Binding("", "other", EVENTS, transient=True), None),
        (Binding("", EVENTS, EVENTS, transient=False), None),
    ],
    ids=["another id", "another key", "durable"],
)
def test_a_binding_that_kombu_does_not_make_is_rejected(
    queue: QueueClient, binding: Binding, message_id: str | None
) -> None:
    orders_to_drop(queue, binding, message_id)
    assert queue.stats(EVENTS).counts.ready == 1
    (letter,) = queue.dead("kombu.bindings")
    assert letter.reason == "this is no binding of kombu"


@pytest.mark.parametrize(
    "name",
    [
        EVENTS,
        "6f9619ff-8b86-4011-b42d-00c04fc964ff",
        "6f9619ff-8b86-4011-b42d-00c04fc964ff.reply.celery.pidbox",
        "celery@host.celery.pidbox",
        "bcast.6f9619ff-8b86-4011-b42d-00c04fc964ff",
        "amq.gen-6f9619ff-8b86-4011-b42d-00c04fc964ff",
    ],
)
def test_the_topic_of_a_queue_that_kombu_has_named_is_removed(
    queue: QueueClient, name: str
) -> None:
    orders_to_drop(queue, Binding("", name, name, transient=True))
    assert [topic.topic for topic in queue.topics()] == ["kombu.bindings"]


def test_a_topic_that_may_not_be_removed_stays(caplog: pytest.LogCaptureFixture) -> None:
    """The reader of the log learns why, and the binding does not come again."""
    client = Forbidding()
    bindings = Bindings(cast(QueueClient, client))
    bindings.add(TRANSIENT)
    with caplog.at_level(logging.INFO, "delaylog.job_systems"):
        bindings.tend()
    assert f"queue {EVENTS}, which nobody holds, stays: 403" in caplog.text
    assert client.acked == 1


class Forbidding:
    """A client that has received the binding of a queue, and may not drop its topic."""

    acked = 0

    def send(self, topic: str, body: str, **fields: Any) -> None:
        assert topic == "kombu.bindings"

    def receive(self, topic: str, *, max: int) -> list[Any]:
        binding = Binding("", EVENTS, EVENTS, transient=True)
        body = json.dumps(asdict(binding))
        return [SimpleNamespace(id=binding.id, body=body, headers={"in-doubt": "1"})]

    def drop_topic(self, topic: str, *, force: bool) -> None:
        raise api_error(403, {"code": "forbidden", "detail": "it may not"})

    def ack(self, message: Any) -> None:
        self.acked += 1


def test_bindings_are_read_again_after_a_second_or_when_asked(queue: QueueClient) -> None:
    seconds = Seconds()
    reader, writer = Bindings(queue, seconds), Bindings(queue)
    assert reader.of("orders") == []
    writer.add(DURABLE)
    assert reader.of("orders") == []
    seconds.now_s = 1
    assert reader.of("orders") == [DURABLE]
    writer.remove(DURABLE)
    reader.reread("orders")
    assert reader.of("orders") == []
