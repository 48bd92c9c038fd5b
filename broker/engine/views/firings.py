"""The firings to come of a topic's schedules, by minute and by hour: the part of a forecast that is
not messages yet.

The work is bounded: SCHEDULES_MAX schedules, and INSTANTS_MAX instants of cron expressions and
rules, in time order. Schedules with equal timings are computed once, and intervals by a division.
`left` and `until_ms` say what is left out: schedules, and firings from a time on. Jitter, overlap
and pauses to come are not known here: an instant counts as a firing.
"""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.schedules.commands import list_schedules
from delaylog.broker.engine.state import EngineState
from delaylog.broker.rules.schedules.instants import next_instant
from delaylog.broker.rules.schedules.timing import Timing
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.storage.layout import Int64Array
from delaylog.storage.work import Work

SCHEDULES_MAX: Final = 2_000
"""Schedules whose firings are counted: about 20 ms of work."""
INSTANTS_MAX: Final = 20_000
"""Instants that are computed one by one: about half a second of work."""
_PAGE: Final = 100
_STEPS: Final = 50
"""Instants of one slice: a millisecond."""


class Firings:
    """Firings after `now_ms`, between edges; `work` fills it."""

    def __init__(self, state: EngineState, topic: Topic, edges_ms: Int64Array, now_ms: int) -> None:
        """`edges_ms`: the starts and ends of all slots, ascending."""
        self._state = state
        self._topic = topic
        self._edges = edges_ms
        self._now_ms = now_ms
        self.counts: Int64Array = np.zeros(len(edges_ms) - 1, np.int64)
        self.schedules = 0
        """Schedules that run and are counted."""
        self.left = False
        """Whether there are more schedules, which are not counted."""
        self.until_ms = int(edges_ms[-1])
        """Firings at and after this time are not counted."""

    def between(self, from_ms: int, to_ms: int) -> int:
        """Firings at and after `from_ms` and before `to_ms`, both of which are edges."""
        first, last = np.searchsorted(self._edges, (from_ms, to_ms))
        return int(self.counts[first:last].sum())

    def work(self, zones: Zones = PACKAGED) -> Work:
        """Count; background work in slices."""
        if not len(self.counts):
            return
        wanted: Counter[tuple[int, Timing, int]] = Counter()
        looked, after = 0, 0
        while looked < SCHEDULES_MAX:
            page = list(list_schedules(self._state, self._topic, after=after, limit=_PAGE + 1))
            for one in page[:_PAGE]:
                after, progress, timing = one.number, one.progress, one.spec.timing
                if one.paused or not progress.next_ms or timing.zone not in zones.names:
                    continue
                self.schedules += 1
                left = -1 if timing.count is None else timing.count - progress.n
                if timing.interval_ms is None:
                    wanted[progress.next_ms, timing, left] += 1
                else:
                    self._add_interval(progress.next_ms, timing, left)
            looked += _PAGE
            self.left = len(page) > _PAGE
            yield None
            if not self.left:
                break
        yield from self._walk(wanted, zones)

    def _add_interval(self, next_ms: int, timing: Timing, left: int) -> None:
        assert timing.interval_ms is not None
        edges = self._edges
        if timing.end_ms is not None:
            edges = np.minimum(edges, timing.end_ms)
        first_ms, step_ms = next_ms, timing.interval_ms
        if first_ms <= self._now_ms:
            # What is due now is not to come.
            due = (self._now_ms - first_ms) // step_ms + 1
            first_ms, left = first_ms + due * step_ms, max(left - due, 0) if left >= 0 else left
        # Firings before each edge.
        before = np.maximum(-(-(edges - first_ms) // step_ms), 0)
        self.counts += np.diff(before if left < 0 else np.minimum(before, left))

    def _walk(self, wanted: Counter[tuple[int, Timing, int]], zones: Zones) -> Work:
        heap = [(at, n, timing, left) for n, (at, timing, left) in enumerate(wanted)]
        weights = list(wanted.values())
        heapify(heap)
        end_ms = int(self._edges[-1])
        for step in range(INSTANTS_MAX):
            if not heap or heap[0][0] >= end_ms:
                return
            at, n, timing, left = heappop(heap)
            if at > self._now_ms:
                slot = int(np.searchsorted(self._edges, at, side="right")) - 1
                if slot >= 0:
                    self.counts[slot] += weights[n]
            following = next_instant(timing, at, zones) if left != 1 else None
            if following is not None:
                heappush(heap, (following, n, timing, left - 1 if left > 0 else left))
            if step % _STEPS == 0:
                yield None
        if heap:
            self.until_ms = min(self.until_ms, heap[0][0])
