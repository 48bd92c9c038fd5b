"""Counting what waits: how many messages of each topic become due in which stretch of time.

The stretches are the nine of camellia-delay-queue's topic info. Whole hours are counted from the
numbers kept per topic and hour; the few hours that a border or the present cuts are read, rows and
states, in slices. One pass serves every topic.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from delaylog.broker.engine.groups import DEFAULT_GROUP, Group
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.storage.columns import among
from delaylog.storage.layout import (
    HOUR_MS,
    HOUR_SHIFT,
    STATE_NONE,
    Int64Array,
    RowArray,
)
from delaylog.storage.whole_rows import take_rows
from delaylog.storage.work import Work

_MINUTE_MS = 60_000
_DAY_MS = 24 * HOUR_MS
BORDERS_MS: Final = (
    _MINUTE_MS,
    10 * _MINUTE_MS,
    30 * _MINUTE_MS,
    HOUR_MS,
    6 * HOUR_MS,
    _DAY_MS,
    7 * _DAY_MS,
    30 * _DAY_MS,
)
"""Where one stretch ends and the next begins, counted from now. A message due exactly on a border
is counted on both sides of it."""
STRETCHES: Final = len(BORDERS_MS) + 1
_SLICE_ROWS: Final = 16_384


class WaitingCounts:
    """Messages not due yet, by topic number and stretch; filled by `work`.

    Counts are those of `now_ms` for messages that were there when their hour was looked at.
    """

    def __init__(
        self,
        state: EngineState,
        now_ms: int,
        only: Topic | None = None,
        group: Group | None = None,
    ) -> None:
        """Of all topics, or of one; as their default groups see them, or one of its groups."""
        self._state = state
        self._now_ms = now_ms
        self._borders = now_ms + np.array(BORDERS_MS, np.int64)
        self._topics = list(state.by_number.values()) if only is None else [only]
        self._counts: dict[int, Int64Array] = {
            topic.number: np.zeros(STRETCHES, np.int64) for topic in self._topics
        }
        self._twice: dict[int, int] = {}
        self._group = group

    def _of(self, topic: Topic) -> Group:
        return self._group or topic.default

    def of(self, topic: Topic) -> list[int]:
        """The nine counts of a topic (zeros for one that came later)."""
        counts = self._counts.get(topic.number)
        return [0] * STRETCHES if counts is None else counts.tolist()

    def buckets(self, topic: Topic) -> list[dict[str, int | None]]:
        """The nine counts with their borders in ms from now; the last one has no end."""
        starts, ends = (0, *BORDERS_MS), (*BORDERS_MS, None)
        return [
            {"from_ms": start, "to_ms": end, "count": count}
            for start, end, count in zip(starts, ends, self.of(topic), strict=True)
        ]

    def total(self, topic: Topic) -> int:
        """Messages of a topic that are not due yet, each once."""
        return sum(self.of(topic)) - self._twice.get(topic.number, 0)

    def work(self) -> Work:
        """Count; background work in slices."""
        cut = {int(moment) // HOUR_MS for moment in (self._now_ms, *self._borders.tolist())}
        now_hour = self._now_ms // HOUR_MS
        wanted: set[int] = set()
        for topic in self._topics:
            counts = self._counts[topic.number]
            whole = {hour: n for hour, n in self._of(topic).hours.items() if hour > now_hour}
            wanted.update(cut & self._of(topic).hours.keys())
            for hour in cut & whole.keys():
                del whole[hour]
            if whole:
                hours = np.fromiter(whole, np.int64, len(whole))
                at = np.searchsorted(self._borders, hours * HOUR_MS, side="left")
                np.add.at(counts, at, np.fromiter(whole.values(), np.int64, len(whole)))
            yield None
        for hour in sorted(wanted):
            yield from self._read(hour)

    def _read(self, hour: int) -> Work:
        """Count the rows of an hour that a border cuts."""
        hours = self._state.hours
        known = hours.counts.get(hour)
        last = known.rows if known is not None else 0
        for first in range(1, last + 1, _SLICE_ROWS):
            if hour not in hours.counts:
                return
            stop = min(first + _SLICE_ROWS, last + 1)
            index = np.arange(first, stop, dtype=np.int64)
            self._count(hour, index, hours.rows(index | (hour << HOUR_SHIFT)))
            yield None

    def _count(self, hour: int, index: Int64Array, rows: RowArray) -> None:
        due = rows["deliver_at"].astype(np.int64)
        topic = rows["topic"].astype(np.int64)
        mask = due > self._now_ms
        if len(self._topics) == 1:
            mask &= topic == self._topics[0].number
        at = np.flatnonzero(mask)
        number = DEFAULT_GROUP if self._group is None else self._group.number
        entries = self._state.hours.view(hour).states(number).get(index[at])
        free = entries["state"] == STATE_NONE
        for number in self._state.special & self._counts.keys():
            mine = np.flatnonzero(topic[at] == number)
            if len(mine):
                group = self._of(self._state.by_number[number])
                free[mine] = group.free(take_rows(rows, at[mine]), take_rows(entries, mine))
        at = at[free]
        due, topic = due[at], topic[at]
        stretch = np.searchsorted(self._borders, due, side="left")
        on_border = np.flatnonzero(among(due, self._borders))
        for number in topic[on_border].tolist():
            self._twice[number] = self._twice.get(number, 0) + 1
        stretch = np.concatenate([stretch, stretch[on_border] + 1])
        topic = np.concatenate([topic, topic[on_border]])
        keys, lengths = np.unique(topic * STRETCHES + stretch, return_counts=True)
        for key, n in zip(keys.tolist(), lengths.tolist(), strict=True):
            counts = self._counts.get(key // STRETCHES)
            if counts is not None:
                counts[key % STRETCHES] += n
