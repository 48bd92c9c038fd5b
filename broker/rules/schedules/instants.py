"""The instants of a timing, in Unix ms: the one function that everything else asks.

The instants depend on the timing and the zone data only. They rise strictly, so an instant names a
firing. `count` is not judged here: it counts firings, which are state. An instant is shown on the
wall clock of its schedule with a mark where the clocks change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

from delaylog.broker.rules.schedules.cron import parsed_cron
from delaylog.broker.rules.schedules.rrule import recurrence
from delaylog.broker.rules.schedules.rrule_text import Stamp, parsed_rrule
from delaylog.broker.rules.schedules.timing import Timing, check_timing
from delaylog.broker.rules.schedules.wall_clock import EPOCH, SECOND, WallClock
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones
from delaylog.contract.calls.schedules import INSTANT_MS_MAX

_S: Final = 1_000


def next_instant(
    timing: Timing, after_ms: int, zones: Zones = PACKAGED, *, bounded: bool = False
) -> int | None:
    """The first instant after `after_ms`, or None: past the end, or nothing matches in 50 years.

    Raises MemberError if the zones do not have the timing's zone, and with `bounded` also if the
    search takes too long (`rarity.py`).
    """
    start_ms = 0 if timing.start_ms is None else timing.start_ms
    after_ms = max(after_ms, start_ms - 1)
    if after_ms >= INSTANT_MS_MAX:
        return None
    if timing.interval_ms is not None:
        found: int | None = start_ms
        if after_ms >= start_ms:
            step = timing.interval_ms
            found = start_ms + ((after_ms - start_ms) // step + 1) * step
    else:
        clock = WallClock(zones.zone(timing.zone))
        found = _on_the_clock(timing, clock, after_ms // _S, bounded=bounded)
    end_ms = INSTANT_MS_MAX if timing.end_ms is None else timing.end_ms
    return found if found is not None and found < end_ms else None


def instants_of(members: Mapping[str, Any]) -> Callable[[int], int | None]:
    """The function `next_instant` of the members of a timing. Raises MemberError."""
    return partial(next_instant, check_timing(members))


def next_instant_after_change(
    timing: Timing, last_ms: int, last_wall_s: int, zones: Zones
) -> int | None:
    """As `next_instant`, when the zone data may have changed since the instant `last_ms`.

    `last_wall_s` is the wall time of that instant by the data it was computed with (`wall_s`). If
    the new data shows another one, wall times up to it have fired already and do not fire again.
    A wall time that the new data moves before the present is the next instant, and is late.
    """
    found = next_instant(timing, last_ms, zones)
    if timing.elapsed or wall_s(timing, last_ms, zones) == last_wall_s:
        return found
    while found is not None and wall_s(timing, found, zones) <= last_wall_s:
        found = next_instant(timing, found, zones)
    return found


def times_a_day(timing: Timing) -> int:
    """At how many times of a day a cron expression or a rule fires, on days on which it does."""
    if timing.cron is not None:
        return parsed_cron(timing.cron).times_a_day
    assert timing.rrule is not None
    return parsed_rrule(timing.rrule).times_a_day


def walls_between(timing: Timing, after_ms: int, upto_ms: int, zones: Zones) -> int | None:
    """The number of instants after one time up to another.

    None if that cannot be told from wall times: the clocks change near them or between, or it is no
    cron expression.
    """
    if timing.cron is None:
        return None
    clock = WallClock(zones.zone(timing.zone))
    first, last = clock.wall(after_ms // _S), clock.wall(upto_ms // _S)
    if (
        not clock.is_steady(after_ms // _S, upto_ms // _S)
        or clock.repeats(first)
        or clock.repeats(last)
    ):
        return None
    return parsed_cron(timing.cron).count(first, last)


def wall_s(timing: Timing, instant_ms: int, zones: Zones) -> int:
    """The wall time of an instant in the timing's zone, in seconds since 1970 on that clock."""
    return int((WallClock(zones.zone(timing.zone)).wall(instant_ms // _S) - EPOCH).total_seconds())


def _on_the_clock(timing: Timing, clock: WallClock, after_s: int, *, bounded: bool) -> int | None:
    gap, fold = ("skip", "both") if timing.elapsed else (timing.gap, timing.fold)
    walls = walls_of(timing, clock)
    if bounded:
        walls = partial(walls, bounded=True)
    found = clock.next_instant(walls, after_s, gap=gap, fold=fold)
    if found is not None and timing.rrule is not None:
        rule = parsed_rrule(timing.rrule)
        while (
            found is not None
            and rule.excluded
            and Stamp(EPOCH + found * SECOND, utc=True) in rule.excluded
        ):
            found = clock.next_instant(walls, found, gap=gap, fold=fold)
        if found is not None and rule.last_s is not None and found > rule.last_s:
            return None
    return None if found is None else found * _S


def walls_of(timing: Timing, clock: WallClock) -> Callable[..., datetime | None]:
    """The wall times of a cron expression or a rule."""
    if timing.cron is not None:
        return parsed_cron(timing.cron).next_wall
    assert timing.rrule is not None
    assert timing.start_ms is not None
    return recurrence(timing.rrule, clock.wall(timing.start_ms // _S)).next_wall


# ------------------------------------------------------------------- instants on the wall clock

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
