"""Writes a row of figures at the end of each minute, for `delaylog report`."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import sub
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from weakref import ref

from delaylog.broker.engine.late.bound import bounded_by
from delaylog.broker.engine.late.explaining import Held, Wait, explain
from delaylog.broker.engine.late.latest import LatestMessage
from delaylog.broker.engine.late.timeline import MERGED_MS, UNKNOWN, Span
from delaylog.broker.engine.watch.histogram import Histogram
from delaylog.broker.host.metrics.minutes import (
    MINUTE_MS,
    UNTAKEN_MAX,
    LateMessage,
    MinuteRow,
    UntakenGroup,
    write_row,
)
from delaylog.broker.host.metrics.topic_samples import ENDED

if TYPE_CHECKING:
    from delaylog.broker.engine.model import Topic
    from delaylog.broker.engine.state import EngineState
    from delaylog.broker.engine.topics.groups import Group, GroupCounts
    from delaylog.broker.host.node import Node

Counts: TypeAlias = tuple[int, ...]
"""Sent, delivered, ended and dead."""
Place: TypeAlias = tuple[int, ...]
"""Numbers of a topic and a group; of a topic; or none for all that have no metrics of their own."""
CAUSES_MAX: Final = 3
"""Causes of a late message that are kept."""
_NOTHING: Final = (0, 0, 0, 0)

log = logging.getLogger("delaylog.minutes")


class _Readings(NamedTuple):
    """Values that only grow, as of some time."""

    counts: dict[Place, Counts]
    """By place, so that a dropped one takes only its own along."""
    late: tuple[list[int], ...]
    """Messages by lateness: until ready, and until handed out."""
    host: tuple[list[int], ...]
    """Syncs, and lags of the loop."""


class MinuteLog:
    """The rows of one node."""

    def __init__(self, node: Node, folder: str) -> None:
        self._node, self._folder = node, folder
        self._run = node.clock.now_ms()
        self._engine = ref(node.engine)
        """Weak, since a replaced engine is freed at once."""
        self._before = _readings(node)
        self._ready: set[Place] = set()
        """Groups that had ready messages at `_ready_ms`, the end of the minute before."""
        self._ready_ms = self._run
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        """Write rows from now on."""
        self._task = asyncio.get_running_loop().create_task(self._go_on())

    async def stop(self) -> None:
        """Write the minute that has begun, and no further one."""
        self._ended.set()
        if self._task is not None:
            # An error of it is logged, and must not stop the stop.
            await asyncio.wait([self._task])

    async def _go_on(self) -> None:
        ended = False
        while not ended:
            # The minute is chosen before the sleep: whoever wakes late writes the minute in which
            # it fell asleep, and not the one after it.
            minute, passed_ms = divmod(self._node.clock.now_ms(), MINUTE_MS)
            with suppress(TimeoutError):
                async with asyncio.timeout((MINUTE_MS - passed_ms) / 1000):
                    await self._ended.wait()
            ended = self._ended.is_set()
            await self.write(minute)

    async def write(self, minute: int) -> None:
        """Write what happened since the last row as the row of a minute."""
        row = self._row(minute)
        try:
            await self._node.machine.in_thread(lambda: write_row(self._folder, row))
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("figures of a minute are lost", extra={"why": str(error)})
            self._failing = True

    def _row(self, minute: int) -> MinuteRow:
        node, state, series = self._node, self._node.engine.state, self._node.engine.state.series
        before, self._before = self._before, _readings(node)
        now = self._before
        if node.engine is not self._engine():
            # Counts of another engine are of other messages; its lateness began at zero.
            self._engine = ref(node.engine)
            zeros = tuple([0] * len(each) for each in now.late)
            before = _Readings(now.counts, zeros, before.host)
        grown = {
            place: tuple(map(sub, values, before.counts.get(place, _NOTHING)))
            for place, values in now.counts.items()
        }
        sent, delivered, ended, dead = (
            max(sum(each), 0) for each in zip(*grown.values(), strict=True)
        )
        ready_late, out_late = map(_more, before.late, now.late)
        syncs, loop_lags = map(_more, before.host, now.host)
        groups = _groups(node)
        return MinuteRow(
            minute=minute,
            run=self._run,
            leading=node.role.leading,
            sent=sent,
            delivered=delivered,
            ended=ended,
            dead=dead,
            living=series.counts.living + sum(group.counts.living for _, group in groups),
            ready=sum(group.ready_count for _, group in groups),
            ready_late=ready_late,
            out_late=out_late,
            syncs=syncs,
            loop_lags=loop_lags,
            disk_full=node.space.take_refused(),
            disk_free=node.space.measured_bytes(),
            late=_late(state, grown, node.clock.now_ms()),
            untaken=self._untaken(groups, grown) if node.role.leading else [],
        )

    def _untaken(
        self, groups: list[tuple[Topic, Group]], grown: Mapping[Place, Counts]
    ) -> list[UntakenGroup]:
        """Groups that had ready messages all the minute, of which none was handed out."""
        now_ms = self._node.clock.now_ms()
        if now_ms - self._ready_ms < MINUTE_MS // 2:
            # The row is of a part of a minute, as at a stop.
            return []
        self._ready_ms = now_ms
        ready = {
            (topic.number, group.number): (topic, group)
            for topic, group in groups
            if group.ready_count
        }
        before, self._ready = self._ready, set(ready)
        found = [
            (group.ready_count, topic, group)
            for place, (topic, group) in ready.items()
            if place in before and grown[place][1] <= 0
        ]
        found.sort(key=lambda each: -each[0])
        state = self._node.engine.state
        return [
            UntakenGroup(
                topic.namespace,
                topic.name,
                group.name,
                bounded_by(state, topic, group, now_ms) or UNKNOWN,
            )
            for _, topic, group in found[:UNTAKEN_MAX]
        ]


def _late(state: EngineState, grown: Mapping[Place, Counts], now_ms: int) -> list[LateMessage]:
    """The latest messages since the last row, with the causes of their waits."""
    found = []
    for place, one in state.latest.take().items():
        topic = state.by_number.get(place[0])
        group = None if topic is None else topic.groups.get(place[1])
        if topic is None or group is None:
            continue
        # Consumers took other messages of the group: that is why one waited if nothing else is.
        busy = grown.get(place, _NOTHING)[1] > 1
        causes = Counter[str]()
        for wait in _waits(state, topic, group, one, now_ms):
            unknown = wait.cause == UNKNOWN and busy and wait.from_ms >= state.timeline.since_ms
            causes["slow_consumers" if unknown else wait.cause] += wait.until_ms - wait.from_ms
        found.append(
            LateMessage(
                topic.name,
                one.id,
                one.late_ms,
                one.at_ms,
                topic.namespace,
                group.name,
                causes.most_common(CAUSES_MAX),
            )
        )
    return sorted(found, key=lambda each: -each.late_ms)


def _waits(
    state: EngineState, topic: Topic, group: Group, one: LatestMessage, now_ms: int
) -> list[Wait]:
    timeline, due_ms = state.timeline, one.at_ms - one.late_ms
    place, key = (topic.number, group.number), (topic.namespace, topic.name, group.name)
    leased = state.leases.leased(*place)
    spans = timeline.spans(key, place, leased, now_ms)
    held = []
    if one.parked:
        held.append(_held(due_ms, one.at_ms, [s for s in spans if s.cause == "no_consumers"]))
    spans += timeline.absences(key, place, leased, now_ms, one.tag_mask)
    work = explain(due_ms, one.at_ms, spans, held)
    while True:
        try:
            next(work)
        except StopIteration as end:
            waits: list[Wait] = end.value
            return waits


def _held(due_ms: int, at_ms: int, nobody: Sequence[Span]) -> Held:
    """When a message that was handed out at `at_ms` waited for its key: from the first call that
    parked it. While nobody asked nothing was under lease: in the end its key was unlocked.
    """
    from_ms, until_ms = due_ms, at_ms
    for span in nobody:
        end_ms = at_ms if span.until_ms is None else span.until_ms
        if span.from_ms < at_ms <= end_ms + MERGED_MS:
            until_ms = max(min(until_ms, span.from_ms), due_ms)
        elif span.from_ms <= due_ms < end_ms:
            from_ms = end_ms
    return Held(from_ms, max(until_ms, from_ms), 0)


def _groups(node: Node) -> list[tuple[Topic, Group]]:
    """The groups that have metrics of their own."""
    return [
        (topic, group)
        for topic in node.engine.state.series.topics.values()
        for group in topic.groups.values()
        if group.counts.sums is None
    ]


def _readings(node: Node) -> _Readings:
    series = node.engine.state.series
    counts: dict[Place, Counts] = {(): (series.sent, *_of(series.counts))}
    counts |= {(number,): (topic.sent, 0, 0, 0) for number, topic in series.topics.items()}
    counts |= {
        (topic.number, group.number): (0, *_of(group.counts)) for topic, group in _groups(node)
    }
    late = series.total_lateness()
    return _Readings(
        counts,
        _copies(late.ready, late.handed_out),
        _copies(node.timings.fsync, node.loop_lag.histogram),
    )


def _of(counts: GroupCounts) -> tuple[int, int, int]:
    ended = sum(getattr(counts, kind) for kind in ENDED)
    return counts.delivered, ended, counts.dead


def _copies(*histograms: Histogram) -> tuple[list[int], ...]:
    return tuple(list(each.counts) for each in histograms)


def _more(before: list[int], now: list[int]) -> list[int]:
    return list(map(sub, now, before))
