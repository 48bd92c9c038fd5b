"""Overview: sums over all topics, the load to come, and the groups with the most ready messages.

Sums and load are those of default groups: a message counts once, however many groups see it.

Hours are counted from the numbers per topic and hour, minutes and seconds from the heads of the
hours' chains. No row is read, so the cost follows from the number of topics and not of messages.
The heads count stored rows: in minutes and seconds, messages that were cancelled or moved since are
included, which a warning of a busy second can bear.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from heapq import nlargest
from operator import itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.engine.views.counts import MINUTE_MS
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.layout import HOUR_MS, HOUR_SECONDS, Int64Array
from delaylog.storage.messages.rows import seconds_of
from delaylog.storage.work import ReadJob, Work

BUSIEST_SECONDS: Final = 5
BEHIND_GROUPS: Final = 10
_GROUPS: Final = 200
"""Groups in one slice, at least those of one topic: less than 1 ms."""
_MINUTE_SECONDS: Final = 60


class Overview:
    """What `work` has summed up, as default groups see it, but for `behind`."""

    def __init__(
        self,
        state: EngineState,
        now_ms: int,
        *,
        minutes: int,
        hours: int,
        shown: Callable[[Topic], bool] = lambda _: True,
    ) -> None:
        """`shown` says which topics `behind` may name."""
        self._state = state
        self._shown = shown
        self._now_ms = now_ms
        self._first_hour = now_ms // HOUR_MS
        self._first_minute_ms = now_ms - now_ms % MINUTE_MS
        self._hours = np.zeros(hours, np.int64)
        self._seconds = np.zeros(minutes * _MINUTE_SECONDS, np.int64)
        """Counted from the beginning of the present minute."""
        self.topics = 0
        self.sent = self.delivered = self.acked = 0.0
        """A second."""
        self.later = 0
        """Messages due after the last of the hours."""
        self.behind: list[tuple[int, Topic, Group]] = []
        """The groups with the most ready messages, and how many each has; the most first."""
        self._least = 0
        """A group with no more ready messages than this is not among them."""
        self.living = self.ready = self.leased = self.dead = 0

    @property
    def minutes(self) -> list[dict[str, int]]:
        """Stored messages by minute; the first is the rest of the present one."""
        return _slots(self._minutes(), self._first_minute_ms, MINUTE_MS)

    @property
    def hours(self) -> list[dict[str, int]]:
        """Messages by hour; of the present one the stored messages of its rest."""
        return _slots(self._hours, self._first_hour * HOUR_MS, HOUR_MS)

    @property
    def seconds(self) -> list[dict[str, int]]:
        """The seconds with the most stored messages, the most first."""
        most = np.argsort(-self._seconds, kind="stable")[:BUSIEST_SECONDS]
        return [
            {"from_ms": self._first_minute_ms + 1_000 * int(at), "count": int(self._seconds[at])}
            for at in most
            if self._seconds[at]
        ]

    def _minutes(self) -> Int64Array:
        out: Int64Array = self._seconds.reshape(-1, _MINUTE_SECONDS).sum(axis=1)
        return out

    def work(self) -> Work:
        """Sum up; background work in slices."""
        hours, counts, groups = array("I"), array("I"), 0
        for topic in list(self._state.by_number.values()):
            self._add(topic)
            topic.default.hours.append_to(hours, counts)
            groups += len(topic.groups) or 1
            if groups >= _GROUPS:
                self._sum_up(hours, counts)
                yield None
                hours, counts, groups = array("I"), array("I"), 0
        self._sum_up(hours, counts)
        yield None
        ends_ms = self._first_minute_ms + 1_000 * len(self._seconds)
        for hour in range(self._first_hour, -(-ends_ms // HOUR_MS)):
            yield from self._count(hour)

    def _add(self, topic: Topic) -> None:
        group, now_ms = topic.default, self._now_ms
        counts = group.counts
        self.topics += 1
        self.living += counts.living
        self.leased += counts.leased
        self.dead += counts.dead
        # The meters of most topics would be made in vain.
        if topic.sent:
            self.sent += topic.sent_rate.per_second(now_ms, topic.sent)
        if counts.delivered:
            self.delivered += group.delivered_rate.per_second(now_ms, counts.delivered)
        if counts.acked:
            self.acked += group.acked_rate.per_second(now_ms, counts.acked)
        for group in topic.groups.values():
            if group.made_ready is None:
                continue
            counts = group.counts
            ready = min(group.ready_count, max(counts.living - counts.leased, 0))
            if group is topic.default:
                self.ready += ready
            if ready > self._least and self._shown(topic):
                self.behind.append((ready, topic, group))

    def _sum_up(self, hours: array[int], counts: array[int]) -> None:
        self._add_hours(np.frombuffer(hours, np.uint32), np.frombuffer(counts, np.uint32))
        self.behind = nlargest(BEHIND_GROUPS, self.behind, key=itemgetter(0))
        if len(self.behind) == BEHIND_GROUPS:
            self._least = self.behind[-1][0]

    def _add_hours(self, hours: npt.NDArray[np.uint32], counts: npt.NDArray[np.uint32]) -> None:
        """Add messages by hour; those of the present hour are counted from its rows."""
        at = hours.astype(np.int64) - self._first_hour
        near = (at > 0) & (at < len(self._hours))
        found = np.bincount(at[near], weights=counts[near], minlength=len(self._hours))
        self._hours += found.astype(np.int64)
        self.later += int(counts[(at > 0) & ~near].sum())

    def _count(self, hour: int) -> Work:
        """Add an hour's rows to the seconds."""
        hours = self._state.hours
        if hour not in hours.counts:
            return
        life, folder = hours.counts.life(hour), hours.view(hour)
        found = np.zeros(HOUR_SECONDS, np.int64)
        if isinstance(folder, DelayHour):
            try:
                with folder.pinned():
                    yield ReadJob(folder.heads.load)
                    if hours.counts.life(hour) != life:
                        return
                    found += folder.heads.get().count
            finally:
                hours.flusher.rest(hour)
        last = hours.flushed(hour)
        for rows, _ in hours.pile.parts(hour):
            # A column, not rows: numpy copies structured rows ten times as slowly.
            fresh = seconds_of(rows, hour)[rows["global_index"] > last]
            found += np.bincount(fresh, minlength=HOUR_SECONDS)
            yield None
        start = (hour * HOUR_MS - self._first_minute_ms) // 1_000
        first, stop = max(0, -start), min(HOUR_SECONDS, len(self._seconds) - start)
        passed = (self._now_ms - hour * HOUR_MS) // 1_000
        first = max(first, passed)
        if hour == self._first_hour and len(self._hours):
            self._hours[0] = found[passed:].sum()
        if first < stop:
            self._seconds[start + first : start + stop] += found[first:stop]


def _slots(counts: Int64Array, start_ms: int, length_ms: int) -> list[dict[str, int]]:
    return [
        {"from_ms": start_ms + at * length_ms, "count": count}
        for at, count in enumerate(counts.tolist())
    ]
