"""Bindings that processes share: durable ones stay, transient ones must be renewed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import delaylog
from delaylog.client.errors import api_error
from delaylog.client.job_systems.kombu_bindings import Binding, Bindings
from delaylog.client.surface import QueueClient

DURABLE = Binding("orders", "new", "q1", transient=False)
TRANSIENT = Binding("orders", "new", "q2", transient=True)


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


def test_the_queues_of_a_dead_process_are_removed_by_another_one(
    queue: QueueClient, clock: delaylog.ManualClock
) -> None:
    """Their bindings too; not the queue that another process holds, nor one that is durable."""
    dead, living = Bindings(queue), Bindings(queue)
    for bindings, names in ((dead, ("q2", "shared")), (living, ("shared", "q4"))):
        for name in names:
            bindings.hold_queue(name)
            bindings.add(Binding("orders", "new", name, transient=True))
    dead.add(DURABLE)
    for _ in range(3):
        for binding in Bindings(queue).of("orders"):
            queue.send(binding.queue, "broadcast")
        clock.advance(timedelta(seconds=40))
        living.tend()
    assert [topic.topic for topic in queue.topics()] == ["kombu.bindings", "q1", "q4", "shared"]
    assert found(queue) == ["q1", "q4", "shared"]
    assert queue.stats("shared").counts.ready == 3
    counts = queue.stats("kombu.bindings").counts
    assert (counts.ready, counts.leased, counts.dead) == (0, 0, 0)


def test_what_is_sent_to_a_deleted_queue_is_removed(
    queue: QueueClient, clock: delaylog.ManualClock
) -> None:
    """A reply may come after its reader has gone, and creates the topic anew."""
    reader, worker = Bindings(queue), Bindings(queue)
    worker.hold_queue("q1")
    reader.hold_queue("q2")
    reader.leave_queue("q2")
    queue.send("q2", "a late reply")
    clock.advance(timedelta(seconds=61))
    reader.tend()
    assert "q2" in [topic.topic for topic in queue.topics()]
    worker.tend()
    assert [topic.topic for topic in queue.topics()] == ["kombu.bindings"]


@pytest.mark.parametrize("body", ["no JSON", "[1]", '{"exchange": ""}'])
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


def test_a_topic_that_may_not_be_removed_stays(caplog: pytest.LogCaptureFixture) -> None:
    """The reader of the log learns why, and the binding does not come again."""
    client = Forbidding()
    bindings = Bindings(cast(QueueClient, client))
    bindings.add(TRANSIENT)
    with caplog.at_level(logging.INFO, "delaylog.job_systems"):
        bindings.tend()
    assert "queue gone, which nobody holds, stays: 403" in caplog.text
    assert client.acked == 1


class Forbidding:
    """A client that has received the binding of a queue, and may not drop its topic."""

    acked = 0

    def send(self, topic: str, body: str, **fields: Any) -> None:
        assert topic == "kombu.bindings"

    def receive(self, topic: str, *, max: int) -> list[Any]:
        body = {"exchange": "", "routing_key": "gone", "queue": "gone", "transient": True}
        return [SimpleNamespace(body=json.dumps(body))]

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
