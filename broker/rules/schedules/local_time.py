"""How an instant looks on the wall clock of a schedule, with a mark where the clocks change."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from delaylog.broker.rules.schedules.instants import walls_of
from delaylog.broker.rules.schedules.timing import Timing
from delaylog.broker.rules.schedules.wall_clock import SECOND, WallClock
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones

MARKS: Final = ("moved", "repeated")


class LocalTime(NamedTuple):
    """A local time and what is special about it."""

    text: str
    """ISO 8601 with the offset from UTC, such as `2027-03-28T03:00:00+02:00`."""
    mark: str
    """`moved`: the time of the schedule is skipped by the clocks, and this instant fires for it;
    `repeated`: the clocks show this time twice; "" otherwise."""


def local_time(timing: Timing, instant_ms: int, zones: Zones = PACKAGED) -> LocalTime:
    """The local time of an instant of the timing."""
    zone = zones.zone(timing.zone)
    clock = WallClock(zone)
    at = datetime.fromtimestamp(instant_ms // 1_000, UTC).astimezone(zone)
    # Not by an addition, which forgets the pass of a fold.
    exact = at.replace(microsecond=instant_ms % 1_000 * 1_000)
    text = exact.isoformat(timespec="milliseconds" if instant_ms % 1_000 else "seconds")
    wall = clock.wall(instant_ms // 1_000)
    if clock.repeats(wall):
        return LocalTime(text, "repeated")
    if timing.elapsed or walls_of(timing, clock)(wall - SECOND) == wall:
        return LocalTime(text, "")
    return LocalTime(text, "moved")
