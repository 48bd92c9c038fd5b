"""The load to come: how many messages of a topic become due in each minute and in each hour.

Whole hours are known by the numbers kept per topic and hour. The minutes, and what is left of the
present hour, are counted from the rows of the near hours, in slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from delaylog.broker.engine.groups import Group
from delaylog.broker.engine.list_filter import ListQuery, RowFilter
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.zone_maps import candidates
from delaylog.storage.layout import HOUR_MS, Int64Array, MessageState, RowArray
from delaylog.storage.whole_rows import concat_rows
from delaylog.storage.work import Work

MINUTE_MS: Final = 60_000
MINUTES_MAX: Final = 120
HOURS_MAX: Final = 744
"""A month: the numbers come as one list."""
_SLICE_ROWS: Final = 4_096
_SLICE_PARTS: Final = 512


class Forecast:
    """Messages that are not due yet, by minute and by hour of the clock; filled by `work`.

    The first minute and the first hour are the present ones, as far as they are still to come.
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
        """As a group (absent: the default one) sees it."""
        self._state = state
        self._group = group or topic.default
        self._now_ms = now_ms
        self._first_minute_ms = now_ms - now_ms % MINUTE_MS
        self._first_hour = now_ms // HOUR_MS
        self._minutes = np.zeros(minutes, np.int64)
        self._hours = np.zeros(hours, np.int64)
        self.later = 0
        """Messages behind the last of the hours."""
        minutes_end_ms = self._first_minute_ms + minutes * MINUTE_MS
        self._rest_end_ms = (self._first_hour + 1) * HOUR_MS
        query = ListQuery(
            frozenset([MessageState.WAITING]),
            due_from=now_ms + 1,
            due_to=max(minutes_end_ms, self._rest_end_ms),
        )
        self._filter = RowFilter(query, topic, self._group, now_ms)

    @property
    def minutes(self) -> list[dict[str, int]]:
        """Messages by minute."""
        return _slots(self._minutes, self._first_minute_ms, MINUTE_MS)

    @property
    def hours(self) -> list[dict[str, int]]:
        """Messages by hour."""
        return _slots(self._hours, self._first_hour * HOUR_MS, HOUR_MS)

    def work(self) -> Work:
        """Count; background work in slices."""
        for hour, count in self._group.hours.items():
            at = hour - self._first_hour
            if 0 < at < len(self._hours):
                self._hours[at] += count
            elif at > 0:
                self.later += count
        yield None
        near = range(self._first_hour, -(-self._filter.due_to // HOUR_MS))
        # What was sent below the hour floor is counted where it stands.
        for hour in near:
            if hour in self._group.hours:
                for due in self._dues(hour):
                    self._count(due)
                    yield None

    def _count(self, due: Int64Array) -> None:
        rest = int(np.count_nonzero(due < self._rest_end_ms))
        if len(self._hours):
            self._hours[0] += rest
        else:
            self.later += rest
        minute = (due - self._first_minute_ms) // MINUTE_MS
        minute = minute[minute < len(self._minutes)]
        self._minutes += np.bincount(minute, minlength=len(self._minutes))

    def _dues(self, hour: int) -> Iterator[Int64Array]:
        """Due times of an hour's rows that wait, in parts."""
        hours = self._state.hours
        life = hours.counts.life(hour)
        folder = hours.view(hour)
        # Nothing may come between these two: the tail begins behind the last row of the files.
        last = hours.flushed(hour)
        parts = [rows for rows, _ in hours.pile.parts(hour)]
        for first, stop in candidates(folder, last, self._filter, 0):
            for start in range(first, stop + 1, _SLICE_ROWS):
                if hours.counts.life(hour) != life:
                    return
                index = np.arange(start, min(start + _SLICE_ROWS, stop + 1), dtype=np.int64)
                yield self._waiting(hour, folder.read_rows(index))
        first = 0
        while first < len(parts):
            stop, count = first, 0
            while stop < len(parts) and count < _SLICE_ROWS and stop - first < _SLICE_PARTS:
                count += len(parts[stop])
                stop += 1
            rows = concat_rows(parts[first:stop])
            first = stop
            if hours.counts.life(hour) != life:
                return
            yield self._waiting(hour, rows[rows["global_index"] > last])

    def _waiting(self, hour: int, rows: RowArray) -> Int64Array:
        mask = self._filter.rows(rows)
        due, index = rows["deliver_at"][mask], rows["global_index"][mask].astype(np.int64)
        states = self._state.hours.view(hour).states(self._group.number)
        mask, _ = self._filter.states(due, rows["sent_position"][mask], states.get(index))
        out: Int64Array = due[mask].astype(np.int64)
        return out


def _slots(counts: Int64Array, start_ms: int, length_ms: int) -> list[dict[str, int]]:
    return [
        {"from_ms": start_ms + at * length_ms, "count": count}
        for at, count in enumerate(counts.tolist())
    ]
