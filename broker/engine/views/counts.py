"""Counts of what is to come: waiting messages by interval, firings of schedules, and held work.

`WaitingCounts` has the nine intervals of camellia-delay-queue's topic info, for every topic in one
pass. `Forecast` has the minutes and hours of one topic, and what its schedules will add. Whole
hours are counted from the numbers per topic and hour. In the few hours that contain an interval's
border or the present time, rows and states are read, in slices.

`Firings` are those to come, by minute and by hour: the part of a forecast that is not messages yet.
The work is bounded: SCHEDULES_MAX schedules, and INSTANTS_MAX instants of cron expressions and
rules, in time order. Schedules with equal timings are computed once, and intervals by a division.
`left` and `until_ms` say what is left out: schedules, and firings from a time on. Jitter, overlap
and pauses to come are not known here: an instant counts as a firing.

`Pending` is what a release of a held broker sets going: messages that are due, those of push
targets, and firings. Messages are counted as `ready` is, in each group that sees them. Firings
follow the schedules' `catch_up`, overlap and count, as if the broker were released now. The work is
bounded as that of a forecast is; `partial` says that schedules or instants are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.schedules.commands import list_schedules
from delaylog.broker.engine.schedules.runner import living_last
from delaylog.broker.engine.schedules.schedule import Schedule
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import DEFAULT_GROUP, Group
from delaylog.broker.engine.views.scan import candidates, walk
from delaylog.broker.rules.schedules.firings import COUNTED_MAX, count_instants, first_after_outage
from delaylog.broker.rules.schedules.instants import next_instant
from delaylog.broker.rules.schedules.timing import Timing
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.storage.columns import among, take_rows
from delaylog.storage.layout import HOUR_MS, NEVER_MS, STATE_NONE, Int64Array
from delaylog.storage.work import Work

# ------------------------------------------------------------------------------ firings to come

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


# ----------------------------------------------------------------------------- waiting messages

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


# -------------------------------------------------------------------- what a release sets going

_GROUPS: Final = 200
"""Groups of one slice: less than 1 ms."""
_SCHEDULES: Final = 20


class Pending:
    """The counts; `work` fills them."""

    def __init__(self, state: EngineState, now_ms: int, shown: Callable[[Topic], bool]) -> None:
        """`shown` says which topics count."""
        self._state, self._now_ms, self._shown = state, now_ms, shown
        self.due = self.pushes = self.firings = 0
        self.partial = False
        self._schedules = 0

    def work(self, zones: Zones = PACKAGED) -> Work:
        """Count; background work in slices."""
        targets, groups = self._state.targets.targets, 0
        for topic in list(self._state.by_number.values()):
            if not self._shown(topic):
                continue
            for group in topic.groups.values():
                counts = group.counts
                ready = min(group.ready_count, max(counts.living - counts.leased, 0))
                self.due += ready
                if (topic.number, group.number) in targets:
                    self.pushes += ready
            groups += len(topic.groups) or 1
            if groups >= _GROUPS:
                yield None
                groups = 0
        for topic in list(self._state.by_number.values()):
            if self._shown(topic):
                yield from self._fire(topic, zones)

    def _fire(self, topic: Topic, zones: Zones) -> Work:
        """Count the firings of a topic's schedules."""
        after = 0
        while page := list(list_schedules(self._state, topic, after=after, limit=_SCHEDULES)):
            for one in page:
                after = one.number
                self._schedules += 1
                if self._schedules > SCHEDULES_MAX:
                    self.partial = True
                    return
                self._count(one, zones)
            yield None

    def _count(self, one: Schedule, zones: Zones) -> None:
        progress, timing, rules = one.progress, one.spec.timing, one.spec.rules
        lacks_zone = timing.zone not in zones.names
        if one.paused or lacks_zone or not 0 < progress.next_ms <= self._now_ms:
            return
        end_ms = self._now_ms + 1
        first_ms = first_after_outage(timing, progress.next_ms, end_ms, rules.after_outage, zones)
        if first_ms is None:
            return
        if rules.overlap in ("skip", "buffer_one"):
            # The first firing is open while the others are judged.
            self.firings += not living_last(self._state, one, progress, self._now_ms)
            return
        fires = count_instants(timing, first_ms, end_ms, zones)
        self.partial |= timing.rrule is not None and fires >= COUNTED_MAX
        if timing.count is not None:
            fires = min(fires, timing.count - progress.n)
        self.firings += fires
