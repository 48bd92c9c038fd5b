"""The table of schedules: part of the state of an engine, changed by SCHEDULE frames.

A SCHEDULE frame is a msgpack map with one of these members:

    put      a schedule as a packed row, which replaces the one of its number
    drop     the number of a schedule
    moved    int64 columns: number and `Progress` of schedules that fired or were recomputed
    zones    the tzdata release by which every next instant was computed

`put` and `moved` have the writer's release too, as `by`. The order of due times is a hint, which a
leader makes at its start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final

import msgpack
import numpy as np

from delaylog.broker.engine.schedules.schedule import PROGRESS, Progress, Schedule
from delaylog.broker.engine.snapshot_list import SnapshotList
from delaylog.storage.columns.packing import PackedList

_NUMBER_BITS: Final = 40
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1
_WIDTH: Final = 1 + len(PROGRESS)


class ScheduleTable:
    """All schedules, by number and by topic and name."""

    def __init__(self) -> None:
        self.by_number: dict[int, Schedule] = {}
        self.by_topic: dict[int, dict[str, Schedule]] = {}
        self.next_number = 1
        self.zones = ""
        """The tzdata release of the next instants; "" before the first schedule."""
        self.mixed = False
        """Whether a node with an older release has computed some of them since."""
        self.entries: SnapshotList[Schedule] = SnapshotList(Schedule.pack)
        self.awaited: dict[int, int] = {}
        """Schedules with a buffered firing, by the origin of the message it waits for; a hint."""
        self._wakes: list[int] | None = None
        """A heap of (due time, number) in one integer, with stale entries; None: does not lead."""
        self._woken: set[int] = set()

    def __len__(self) -> int:
        return len(self.by_number)

    def find(self, topic: int, name: str) -> Schedule | None:
        """A schedule of a topic by name."""
        return self.by_topic.get(topic, {}).get(name)

    # ------------------------------------------------------------------ frames

    def apply(self, members: Mapping[str, Any]) -> None:
        """Apply a SCHEDULE frame."""
        by = members.get("by")
        if by is not None:
            self.zones = self.zones or by
            self.mixed |= by < self.zones
        if "put" in members:
            self._put(Schedule.unpack(msgpack.unpackb(members["put"])))
        elif "drop" in members:
            self._forget(members["drop"])
        elif "moved" in members:
            for number, progress in rows_moved(members):
                one = self.by_number.get(number)
                if one is not None:
                    self.entries.before_change(one)
                    one.progress = progress
        elif "zones" in members:
            self.zones, self.mixed = members["zones"], False

    def drop_topic(self, topic: int) -> None:
        """A topic was dropped, with all of its schedules."""
        for one in list(self.by_topic.get(topic, {}).values()):
            self._forget(one.number)

    def _put(self, one: Schedule) -> None:
        self._forget(one.number)
        self.by_number[one.number] = one
        self.by_topic.setdefault(one.topic, {})[one.name] = one
        self.next_number = max(self.next_number, one.number + 1)
        self.entries.append(one)
        self.wake(one)

    def _forget(self, number: int) -> None:
        one = self.by_number.pop(number, None)
        if one is not None:
            self.entries.remove(one)
            names = self.by_topic[one.topic]
            del names[one.name]
            if not names:
                del self.by_topic[one.topic]

    def snapshot(self) -> tuple[PackedList, dict[str, Any]]:
        """(rows, the rest) for a checkpoint; `entries.work` fills the rows in slices."""
        rest = {"next": self.next_number, "zones": self.zones, "mixed": self.mixed}
        return self.entries.snapshot(len(self.by_number)), rest

    def restore(self, rows: Iterable[list[Any]], rest: Mapping[str, Any]) -> None:
        """Fill an empty table from a checkpoint."""
        for row in rows:
            self._put(Schedule.unpack(row))
        self.next_number = rest["next"]
        self.zones, self.mixed = rest["zones"], rest["mixed"]

    # ------------------------------------------------------------------ due times, on a leader

    def lead(self) -> None:
        """Put all due times in order. Firings that wait for a message are looked at first."""
        self._woken = {n for n, one in self.by_number.items() if one.progress.buffered_ms}
        self.awaited.clear()
        self._wakes = list(self._woken)
        self._wakes += [
            one.wake_ms(one.progress) << _NUMBER_BITS | number
            for number, one in self.by_number.items()
            if one.progress.next_ms and not one.paused
        ]
        heapify(self._wakes)

    def follow(self) -> None:
        """Forget the order of due times: another node leads."""
        self._wakes = None
        self._woken.clear()
        self.awaited.clear()

    def wake(self, one: Schedule, progress: Progress | None = None) -> None:
        """Enter the due time of a schedule. `progress` = what a frame will store soon."""
        progress = progress or one.progress
        if self._wakes is not None and progress.next_ms and not one.paused:
            heappush(self._wakes, one.wake_ms(progress) << _NUMBER_BITS | one.number)

    def ended(self, origins: Sequence[int]) -> None:
        """Messages that buffered firings wait for may have ended: look at those at once."""
        for origin in self.awaited.keys() & set(origins):
            number = self.awaited.pop(origin)
            if self._wakes is not None:
                self._woken.add(number)
                heappush(self._wakes, number)

    def purged(self, topic: int) -> None:
        """Messages of a topic have ended at once."""
        waiting = self.awaited.items()
        self.ended([o for o, number in waiting if self._topic_of(number) == topic])

    def _topic_of(self, number: int) -> int | None:
        one = self.by_number.get(number)
        return None if one is None else one.topic

    def next_wake_ms(self) -> int | None:
        """When something may be due; never later than it is."""
        return self._wakes[0] >> _NUMBER_BITS if self._wakes else None

    def pop_due(self, now_ms: int, moved: Mapping[int, Progress]) -> Schedule | None:
        """The schedule that is due first, None if none is. `moved` = progress not applied yet."""
        while self._wakes and self._wakes[0] >> _NUMBER_BITS <= now_ms:
            entry = heappop(self._wakes)
            one = self.by_number.get(entry & _NUMBER_MASK)
            if one is None or one.paused:
                continue
            if one.number in self._woken:
                self._woken.discard(one.number)
                return one
            progress = moved.get(one.number, one.progress)
            if progress.next_ms and one.wake_ms(progress) == entry >> _NUMBER_BITS:
                return one
        return None


def moved_rows(moved: Mapping[int, Progress]) -> bytes:
    """The columns of a frame."""
    rows = [[number, *progress.values()] for number, progress in moved.items()]
    return np.array(rows, "<i8").tobytes()


def rows_moved(members: Mapping[str, Any]) -> Iterator[tuple[int, Progress]]:
    """(number, progress) of each schedule that a frame moves."""
    for number, *values in np.frombuffer(members["moved"], "<i8").reshape(-1, _WIDTH).tolist():
        yield number, Progress(*values)
