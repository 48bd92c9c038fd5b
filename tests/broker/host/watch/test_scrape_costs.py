"""A scrape keeps the loop free: values are read in slices, and slow ones on the thread."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from delaylog.broker.engine.watch.histogram import Lateness
from delaylog.broker.host.watch.metrics import Metrics, TopicSamples
from tests.broker.host.running_node import running

GROUPS = 10_000


async def test_the_descriptors_are_listed_on_the_thread(tmp_path: Path) -> None:
    """20,000 of them take 72 ms."""
    async with running(tmp_path) as host:
        metrics = Metrics(host.node)
        process: Any = metrics._process
        collect, threads = process.collect, []

        def noted() -> Any:
            threads.append(threading.current_thread())
            return collect()

        process.collect = noted
        text, _ = await metrics.text()
        assert b"process_open_fds " in text
        assert threads
        assert threading.main_thread() not in threads


def test_a_slice_is_bounded_in_groups_of_one_topic() -> None:
    """Purpose: a topic with many groups is no single slice. Method: groups that count reads."""
    reads = 0

    class Group:
        made_ready, counts = None, SimpleNamespace(sums=object())

        @property
        def made_gate(self) -> None:
            nonlocal reads
            reads += 1

    topic = SimpleNamespace(number=1, groups={str(number): Group() for number in range(GROUPS)})
    series = SimpleNamespace(topics={}, lateness={}, sent=0, other_lateness=Lateness())
    counts = dict.fromkeys(("living", "leased", "delivered", "acked", "expired", "dead"), 0)
    series.counts = SimpleNamespace(**counts, cancelled=0, replaced=0)
    state: Any = SimpleNamespace(series=series, by_number={1: topic})
    steps = [0, *(reads for _ in TopicSamples().read(state, 0))]
    assert reads == GROUPS
    assert max(b - a for a, b in zip(steps, [*steps[1:], reads], strict=True)) <= 1_024
