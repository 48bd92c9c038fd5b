"""Next instants by other zone data: after a start of a program with another release of tzdata.

Schedules are computed in the order of their due times, and what has been computed may fire. So a
million of them take a minute of work, and what is due waits only for what is due before it or in
the same millisecond.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.engine.schedules.instants import recomputed
from delaylog.broker.engine.schedules.schedule import Progress
from delaylog.broker.engine.schedules.table import ScheduleTable
from delaylog.broker.rules.schedules.zones import Zones
from delaylog.storage.layout import NEVER_MS

SLICE_SCHEDULES: Final = 64


class Recomputing:
    """The schedules that are left, in order."""

    def __init__(self, table: ScheduleTable) -> None:
        self._table = table
        self._times, self._numbers = table.in_order()
        self._at = 0

    @property
    def upto_ms(self) -> int:
        """Everything due before this is computed."""
        return int(self._times[self._at]) if self._at < len(self._times) else NEVER_MS

    def step(self, zones: Zones) -> dict[int, Progress]:
        """Compute a slice; returns what changes."""
        moved: dict[int, Progress] = {}
        part = self._numbers[self._at : self._at + SLICE_SCHEDULES].tolist()
        self._at += len(part)
        for number in part:
            one = self._table.get(number)
            if one is not None and (progress := recomputed(one, zones)) != one.progress:
                moved[number] = progress
        return moved
