"""What a release of a held broker sets going: messages that are due, those of push targets, and
firings.

Messages are counted as `ready` is, in each group that sees them. Firings follow the schedules'
`catch_up`, overlap and count, as if the broker were released now. The work is bounded as that of a
forecast is; `partial` says that schedules or instants are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.schedules.commands import list_schedules
from delaylog.broker.engine.schedules.firing import living_last
from delaylog.broker.engine.schedules.schedule import Schedule
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.views.firings import SCHEDULES_MAX
from delaylog.broker.rules.schedules.catch_up import COUNTED_MAX, count_instants, first_after_outage
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.storage.work import Work

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
