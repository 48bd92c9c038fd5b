"""What a Dyno queue measures: the original's names, counts that follow the calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delaylog.client.queues import DynoMessage, DynoQueue, DynoStats
from delaylog.client.queues.dyno_shards import STATISTICS, TIMERS


def test_figures_are_least_greatest_mean_and_sum() -> None:
    stats = DynoStats("q", "a")
    assert (stats["pop"].count, stats["pop"].mean) == (0, 0.0)
    for value in (5.0, 1.0, 3.0):
        stats.record("pop", value)
    pop = stats["pop"]
    assert (pop.count, pop.min, pop.max, pop.mean, pop.total) == (3, 1.0, 5.0, 3.0, 9.0)
    assert set(stats.as_dict()) == {*TIMERS, *STATISTICS}
    assert stats.tags == {"class": "DynoQueue", "shard": "a", "queueName": "q"}
    with pytest.raises(KeyError):
        stats.record("nothing", 1.0)


def test_a_failing_call_is_timed_too() -> None:
    stats = DynoStats("q", "a")
    with pytest.raises(RuntimeError), stats.timed("ack"):
        raise RuntimeError
    assert stats["ack"].count == 1


def test_no_value_is_lost_among_threads(in_threads: Callable[..., None]) -> None:
    stats = DynoStats("q", "a")

    def work() -> None:
        for _ in range(2_000):
            stats.record("push", 1.0)
            stats.missed()

    in_threads(work, work, work)
    assert (stats["push"].total, stats.queue_miss) == (6_000, 6_000)


def test_calls_are_counted(client: Any) -> None:
    queue = DynoQueue(client, "q")
    queue.push([DynoMessage(str(n)) for n in range(4)])
    queue.peek(2)
    queue.get("0")
    queue.size()
    popped = queue.pop(3)
    queue.ack_all(popped[:2])
    queue.ack(popped[2].id)
    queue.remove("3")
    queue.process_unacks()
    counts = {figure: found.count for figure, found in queue.stats.as_dict().items()}
    assert counts == {
        "peek": 1,
        "ack": 2,
        "size": 2,
        "process_unack": 1,
        "remove": 1,
        "get": 1,
        "queue_depth": 1,
        "batch_size": 1,
        "pop": 1,
        "push": 1,
        "prefetch": queue.stats["prefetch"].count,
    }
    assert queue.stats["batch_size"].max == 3
    assert queue.stats["prefetch"].count >= 1
    assert all(
        found.total > 0
        for figure, found in queue.stats.as_dict().items()
        if figure != "queue_depth"
    )
