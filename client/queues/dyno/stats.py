"""What a Dyno queue measures of itself, under the original's names.

The one rule: taking the figures never waits for a call, and reading them never stops one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figures:
    """Values that were seen: how many, the least, the greatest and their sum."""

    count: int = 0
    min: float = 0.0
    max: float = 0.0
    total: float = 0.0

    @property
    def mean(self) -> float:
        """The mean of them, 0 without any."""
        return self.total / self.count if self.count else 0.0

    def with_value(self, value: float) -> Figures:
        """These and one more."""
        if self.count == 0:
            return Figures(1, value, value, value)
        return Figures(
            self.count + 1, min(self.min, value), max(self.max, value), self.total + value
        )


TIMERS = ("peek", "ack", "size", "process_unack", "remove", "get")
"""Milliseconds of a call."""

STATISTICS = ("queue_depth", "batch_size", "pop", "push", "prefetch")
"""`queue_depth`: messages queued, seen by `process_unacks`; `batch_size`: messages asked of a pop;
`pop`, `push`, `prefetch`: milliseconds of a call divided by its messages. A prefetch is one request
of a
pop that brought messages."""


class DynoStats:
    """Timers, statistics and a counter of one queue. Safe to use from many threads."""

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
        """A timer or a statistic by its name. KeyError."""
        return self._figures[name]

    @property
    def queue_miss(self) -> int:
        """Messages asked for by id, or found by a predicate, that somebody else had."""
        return self._misses

    def as_dict(self) -> dict[str, Figures]:
        """All timers and statistics."""
        with self._lock:
            return dict(self._figures)

    def record(self, name: str, value: float) -> None:
        """One more value of a timer or statistic."""
        with self._lock:
            self._figures[name] = self._figures[name].with_value(value)

    def missed(self) -> None:
        """One more miss."""
        with self._lock:
            self._misses += 1

    @contextmanager
    def timed(self, name: str, batch: int = 1) -> Iterator[None]:
        """Record how long the block takes, in ms, divided by `batch`; of a block that fails too."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.record(name, (time.perf_counter() - began) * 1000 / max(1, batch))
