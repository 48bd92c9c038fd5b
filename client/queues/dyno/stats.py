"""The statistics of a Dyno queue, with the original's names.

Recording and reading them never block a call of the queue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figures:
    """Count, minimum, maximum and sum of recorded values."""

    count: int = 0
    min: float = 0.0
    max: float = 0.0
    total: float = 0.0

    @property
    def mean(self) -> float:
        """The mean, or 0 without values."""
        return self.total / self.count if self.count else 0.0

    def with_value(self, value: float) -> Figures:
        """The figures with one more value."""
        if self.count == 0:
            return Figures(1, value, value, value)
        return Figures(
            self.count + 1, min(self.min, value), max(self.max, value), self.total + value
        )


TIMERS = ("peek", "ack", "size", "process_unack", "remove", "get")
"""Durations of calls, in milliseconds."""

STATISTICS = ("queue_depth", "batch_size", "pop", "push", "prefetch")
"""`queue_depth`: queued messages at each `process_unacks`; `batch_size`: messages requested by a
pop;
`pop`, `push`, `prefetch`: milliseconds of a call per message. A prefetch is one request of a pop
that returned messages."""


class DynoStats:
    """The timers, statistics and counter of one queue. Thread-safe."""

    def __init__(self, queue_name: str, shard: str) -> None:
        self.tags: Mapping[str, str] = {
            "class": "DynoQueue",
            "shard": shard,
            "queueName": queue_name,
        }
        self._figures = dict.fromkeys((*TIMERS, *STATISTICS), Figures())
        self._misses = 0
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> Figures:
        """A timer or statistic by name. Raises KeyError."""
        return self._figures[name]

    @property
    def queue_miss(self) -> int:
        """Messages requested by id or predicate that another consumer took first."""
        return self._misses

    def as_dict(self) -> dict[str, Figures]:
        """All timers and statistics."""
        with self._lock:
            return dict(self._figures)

    def record(self, name: str, value: float) -> None:
        """Record a value of a timer or statistic."""
        with self._lock:
            self._figures[name] = self._figures[name].with_value(value)

    def missed(self) -> None:
        """Count a miss."""
        with self._lock:
            self._misses += 1

    @contextmanager
    def timed(self, name: str, batch: int = 1) -> Iterator[None]:
        """Record the duration of the block in ms, divided by `batch`, also if it raises."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.record(name, (time.perf_counter() - began) * 1000 / max(1, batch))
