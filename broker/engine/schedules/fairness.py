"""Which of the schedules that are due is next: topics take turns.

Due times alone are unfair: a topic whose schedules fire more often than the broker can is always
behind, so its instants are always the oldest, and those of all other topics wait for ever. Here the
topics with something due take turns, however much each has; within a topic the oldest is first.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush


class DueByTopic:
    """Schedules whose time has come and that have not been looked at yet."""

    def __init__(self) -> None:
        self._heaps: dict[int, list[tuple[int, int]]] = {}
        """(time, number) of a topic's schedules; no heap is empty."""
        self._turns: deque[int] = deque()
        """The topics of `_heaps`; the next one is at the left."""
        self._numbers: set[int] = set()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, topic: int, number: int, due_ms: int) -> None:
        """A schedule is due since `due_ms`. One that is there already keeps its place.

        A topic that has nothing due takes its first turn after all others.
        """
        if number in self._numbers:
            return
        self._numbers.add(number)
        heap = self._heaps.get(topic)
        if heap is None:
            heap = self._heaps[topic] = []
            self._turns.append(topic)
        heappush(heap, (due_ms, number))

    def take(self) -> int | None:
        """The number of the schedule that is next; None if none is due."""
        if not self._turns:
            return None
        topic = self._turns.popleft()
        heap = self._heaps[topic]
        _, number = heappop(heap)
        self._numbers.discard(number)
        if heap:
            self._turns.append(topic)
        else:
            del self._heaps[topic]
        return number
