"""From one instant of a schedule to the next: the only place that computes a `Progress`."""

from __future__ import annotations

from delaylog.broker.engine.schedules.schedule import Progress, Schedule
from delaylog.broker.rules.schedules.instants import (
    next_instant,
    next_instant_after_change,
    wall_s,
)
from delaylog.broker.rules.schedules.jitter import due_ms
from delaylog.broker.rules.schedules.zones import Zones


def is_spent(one: Schedule, progress: Progress) -> bool:
    """Whether it has fired as often as its count says."""
    count = one.spec.timing.count
    return count is not None and progress.n >= count


def begin_after(one: Schedule, progress: Progress, after_ms: int, zones: Zones) -> None:
    """Wait for the first instant after a time: an instant, or when a call changed the schedule."""
    timing = one.spec.timing
    progress.last_ms = after_ms
    progress.wall_s = 0 if timing.elapsed else wall_s(timing, after_ms, zones)
    wait_for(one, progress, next_instant(timing, after_ms, zones), zones)


def wait_for(one: Schedule, progress: Progress, instant_ms: int | None, zones: Zones) -> None:
    """Wait for an instant; for none if there is none, or the schedule has fired `count` times."""
    if instant_ms is None or is_spent(one, progress):
        progress.next_ms = progress.due_ms = 0
        return
    progress.next_ms = progress.due_ms = instant_ms
    jitter_ms = one.spec.rules.jitter_ms
    if jitter_ms:
        following = next_instant(one.spec.timing, instant_ms, zones)
        key = f"{one.topic}/{one.name}".encode()
        progress.due_ms = due_ms(key, instant_ms, following, jitter_ms)


def recomputed(one: Schedule, zones: Zones) -> Progress:
    """The progress by other zone data; the same if that changes nothing, or lacks its zone."""
    progress, timing = one.progress.copy(), one.spec.timing
    if progress.next_ms and timing.interval_ms is None and timing.zone in zones.names:
        found = next_instant_after_change(timing, progress.last_ms, progress.wall_s, zones)
        wait_for(one, progress, found, zones)
    return progress
