"""Writes a row of figures at the end of each minute, for `delaylog report`."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from delaylog.broker.engine.watch.histogram import Histogram
from delaylog.broker.host.metrics.minutes import LATE_MAX, MINUTE_MS, MinuteRow, write_row

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node

LATE_MS_MIN: Final = 10
"""A message that is handed out sooner after its due time is not named as a late one."""

log = logging.getLogger("delaylog.minutes")


@dataclass(slots=True)
class _Totals:
    """Values that only grow, as of some time."""

    sent: int = 0
    delivered: int = 0
    ended: int = 0
    dead: int = 0
    ready_late: list[int] = field(default_factory=list)
    out_late: list[int] = field(default_factory=list)
    syncs: list[int] = field(default_factory=list)
    loop_lags: list[int] = field(default_factory=list)


class MinuteLog:
    """The rows of one node."""

    def __init__(self, node: Node, folder: str) -> None:
        self._node, self._folder = node, folder
        self._run = node.clock.now_ms()
        self._before = _totals(node)
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        """Write rows from now on."""
        self._task = asyncio.get_running_loop().create_task(self._go_on())

    async def stop(self) -> None:
        """Write the minute that has begun, and no further one."""
        if self._task is not None:
            self._task.cancel()
            await self.write()

    async def _go_on(self) -> None:
        while True:
            left_ms = MINUTE_MS - self._node.clock.now_ms() % MINUTE_MS
            # A little earlier, so that the row belongs to the minute that ends.
            await asyncio.sleep(max(left_ms - 50, 100) / 1000)
            await self.write()
            await asyncio.sleep(0.2)

    async def write(self) -> None:
        """Write the row of the present minute."""
        row = self._row()
        try:
            await self._node.machine.in_thread(lambda: write_row(self._folder, row))
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("figures of a minute are lost", extra={"why": str(error)})
            self._failing = True

    def _row(self) -> MinuteRow:
        node, state = self._node, self._node.engine.state
        now_ms = node.clock.now_ms()
        before, self._before = self._before, _totals(node)
        now, series = self._before, state.series
        groups = [
            group
            for topic in series.topics.values()
            for group in topic.groups.values()
            if group.counts.sums is None
        ]
        return MinuteRow(
            minute=now_ms // MINUTE_MS,
            run=self._run,
            leading=node.role.leading,
            sent=_grown(before.sent, now.sent),
            delivered=_grown(before.delivered, now.delivered),
            ended=_grown(before.ended, now.ended),
            dead=_grown(before.dead, now.dead),
            living=series.counts.living + sum(group.counts.living for group in groups),
            ready=sum(group.ready_count for group in groups),
            ready_late=_more(before.ready_late, now.ready_late),
            out_late=_more(before.out_late, now.out_late),
            syncs=_more(before.syncs, now.syncs),
            loop_lags=_more(before.loop_lags, now.loop_lags),
            disk_full=node.refusing_sends,
            disk_free=node.space.free_bytes(),
            late=self._late(now_ms),
        )

    def _late(self, now_ms: int) -> list[list[Any]]:
        """The latest of the messages that were kept as examples in this minute."""
        state = self._node.engine.state
        since_ms = now_ms // MINUTE_MS * MINUTE_MS
        found: list[list[Any]] = [
            [state.by_number[number].name, each.text, int(each.value), each.at_ms]
            for number, late in state.series.lateness.items()
            if number in state.by_number
            for each in late.handed_out.examples.values()
            if each.at_ms >= since_ms and each.value >= LATE_MS_MIN
        ]
        return sorted(found, key=lambda each: -each[2])[:LATE_MAX]


def _totals(node: Node) -> _Totals:
    series = node.engine.state.series
    counts = [series.counts]
    sent = series.sent
    for topic in series.topics.values():
        sent += topic.sent
        counts += [each.counts for each in topic.groups.values() if each.counts.sums is None]
    late = series.total_lateness()
    return _Totals(
        sent,
        sum(each.delivered for each in counts),
        sum(each.acked + each.expired + each.dead + each.deleted for each in counts),
        sum(each.dead for each in counts),
        *(list(each.counts) for each in _histograms(node, late.ready, late.handed_out)),
    )


def _histograms(node: Node, *late: Histogram) -> tuple[Histogram, ...]:
    return (*late, node.timings.fsync, node.loop_lag.histogram)


def _grown(before: int, now: int) -> int:
    """The growth of a sum; a dropped topic takes its part along."""
    return max(now - before, 0)


def _more(before: list[int], now: list[int]) -> list[int]:
    """What was counted since; after an exchange of the engine, counts begin again."""
    if sum(now) < sum(before):
        return now
    return [new - old for old, new in zip(before, now, strict=True)]
