"""Bindings that processes share: durable ones stay, transient ones must be renewed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import delaylog
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
