"""Counts of waiting messages by the interval in which they become due.

`WaitingCounts` has the nine intervals of camellia-delay-queue's topic info, for every topic in one
pass. `Forecast` has the minutes and hours of one topic, and what its schedules will add. Whole
hours are counted from the numbers per topic and hour. In the few hours that contain an interval's
border or the present time, rows and states are read, in slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import numpy as np

from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import DEFAULT_GROUP, Group
from delaylog.broker.engine.views.firings import Firings
from delaylog.broker.engine.views.scanning import walk
from delaylog.broker.engine.views.zone_maps import candidates
from delaylog.storage.columns.questions import among
from delaylog.storage.columns.whole_rows import take_rows
from delaylog.storage.layout import (
    HOUR_MS,
    NEVER_MS,
    STATE_NONE,
    Int64Array,
)
from delaylog.storage.work import Work

MINUTE_MS: Final = 60_000
_DAY_MS = 24 * HOUR_MS
BORDERS_MS: Final = (
    MINUTE_MS,
    10 * MINUTE_MS,
    30 * MINUTE_MS,
    HOUR_MS,
    6 * HOUR_MS,
    _DAY_MS,
    7 * _DAY_MS,
    30 * _DAY_MS,
)
"""Borders between the intervals, counted from now. A message due exactly on a border is counted on
both sides, as camellia does."""
STRETCHES: Final = len(BORDERS_MS) + 1


def waiting(
    state: EngineState, hour: int, seen: Mapping[int, Group], now_ms: int, due_to: int = NEVER_MS
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """(topic numbers, due times) of an hour's messages that are not due yet, in slices.

    `seen` = by topic number the group whose view counts: all default groups, or one of one topic.
    """
    only = next(iter(seen)) if len(seen) == 1 else None
    ranges = partial(candidates, topic=only, due_from=now_ms + 1, due_to=due_to)
    group_number = next((group.number for group in seen.values()), DEFAULT_GROUP)
    for rows in walk(state.hours, hour, ranges):
        due = rows["deliver_at"].astype(np.int64)
        topic = rows["topic"].astype(np.int64)
        mask = (due > now_ms) & (due < due_to)
        if only is not None:
            mask &= topic == only
        at = np.flatnonzero(mask)
        index = rows["global_index"][at].astype(np.int64)
        entries = state.hours.view(hour).states(group_number).get(index)
        free = entries["state"] == STATE_NONE
        for number in state.marks.special & seen.keys():
            mine = np.flatnonzero(topic[at] == number)
            if len(mine):
                free[mine] = seen[number].free(take_rows(rows, at[mine]), take_rows(entries, mine))
        at = at[free]
        yield topic[at], due[at]


class WaitingCounts:
    """Messages not due yet, by topic number and interval; filled by `work`.

    Counts are as of `now_ms`, of messages that existed when their hour was read.
    """

    def __init__(
        self,
        state: EngineState,
        now_ms: int,
        only: Topic | None = None,
        group: Group | None = None,
    ) -> None:
        """Count all topics as their default groups see them, or one topic as one group sees it."""
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
        """The nine counts of a topic; zeros for one that was created later."""
        counts = self._counts.get(topic.number)
        return [0] * STRETCHES if counts is None else counts.tolist()

    def buckets(self, topic: Topic) -> list[dict[str, int | None]]:
        """The nine counts with their intervals in ms from now; the last interval has no end."""
        starts, ends = (0, *BORDERS_MS), (*BORDERS_MS, None)
        return [
            {"from_ms": start, "to_ms": end, "count": count}
            for start, end, count in zip(starts, ends, self.of(topic), strict=True)
        ]

    def total(self, topic: Topic) -> int:
        """Messages of a topic that are not due yet, each counted once."""
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
        seen = {topic.number: self._of(topic) for topic in self._topics}
        for hour in sorted(wanted):
            for topics, due in waiting(self._state, hour, seen, self._now_ms):
                self._count(topics, due)
                yield None

    def _count(self, topic: Int64Array, due: Int64Array) -> None:
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


class Forecast:
    """Messages that are not due yet, by minute and by hour of the clock; filled by `work`.

    The first minute and the first hour are the rest of the present ones.
    """

    def __init__(
        self,
        state: EngineState,
        topic: Topic,
        now_ms: int,
        *,
        minutes: int,
        hours: int,
        group: Group | None = None,
    ) -> None:
        """As `group` sees it, or the default group if None."""
        self._state = state
        self._group = group or topic.default
        self._now_ms = now_ms
        self._first_minute_ms = now_ms - now_ms % MINUTE_MS
        self._first_hour = now_ms // HOUR_MS
        self._minutes = np.zeros(minutes, np.int64)
        self._hours = np.zeros(hours, np.int64)
        self.later = 0
        """Messages due after the last of the hours."""
        minutes_end_ms = self._first_minute_ms + minutes * MINUTE_MS
        self._rest_end_ms = (self._first_hour + 1) * HOUR_MS
        self._due_to = max(minutes_end_ms, self._rest_end_ms)
        self._seen = {topic.number: self._group}
        edges = [self._first_minute_ms + at * MINUTE_MS for at in range(minutes + 1)]
        edges += [(self._first_hour + at) * HOUR_MS for at in range(hours + 1)]
        self.firings = Firings(state, topic, np.unique(np.array(edges, np.int64)), now_ms)
        """Of schedules, which are no messages yet."""

    @property
    def minutes(self) -> list[dict[str, int]]:
        """Messages and firings by minute."""
        return self._slots(self._minutes, self._first_minute_ms, MINUTE_MS)

    @property
    def hours(self) -> list[dict[str, int]]:
        """Messages and firings by hour."""
        return self._slots(self._hours, self._first_hour * HOUR_MS, HOUR_MS)

    def work(self) -> Work:
        """Count; background work in slices."""
        for hour, count in self._group.hours.items():
            at = hour - self._first_hour
            if 0 < at < len(self._hours):
                self._hours[at] += count
            elif at > 0:
                self.later += count
        yield None
        near = range(self._first_hour, -(-self._due_to // HOUR_MS))
        # Messages due below the hour floor are counted in the hour where they are stored.
        for hour in near:
            if hour in self._group.hours:
                for _, due in waiting(self._state, hour, self._seen, self._now_ms, self._due_to):
                    self._count(due)
                    yield None
        yield from self.firings.work()

    def _count(self, due: Int64Array) -> None:
        rest = int(np.count_nonzero(due < self._rest_end_ms))
        if len(self._hours):
            self._hours[0] += rest
        else:
            self.later += rest
        minute = (due - self._first_minute_ms) // MINUTE_MS
        minute = minute[minute < len(self._minutes)]
        self._minutes += np.bincount(minute, minlength=len(self._minutes))

    def _slots(self, counts: Int64Array, start_ms: int, length_ms: int) -> list[dict[str, int]]:
        return [
            {
                "from_ms": from_ms,
                "count": count,
                "firings": self.firings.between(from_ms, from_ms + length_ms),
            }
            for from_ms, count in zip(
                range(start_ms, start_ms + len(counts) * length_ms, length_ms),
                counts.tolist(),
                strict=True,
            )
        ]
