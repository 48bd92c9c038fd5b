"""Marks of clock changes: what is special about the local time of an instant.

A preview shows them, so that a reader sees which firings a clock change moves or repeats.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from delaylog.broker.schedules.instants import next_instant
from delaylog.broker.schedules.timing import Timing
from delaylog.broker.schedules.wall_clock import EPOCH, SECOND
from delaylog.broker.schedules.zones import PACKAGED, Zones

GAP: Final = "gap"
"""The clocks skip the time of this firing, so it fires right after the change."""
FIRST: Final = "first"
"""The clocks repeat this local time, and this is its first pass."""
SECOND_PASS: Final = "second"
MARKS: Final = (GAP, FIRST, SECOND_PASS)


def local_time(timing: Timing, instant_ms: int, zones: Zones = PACKAGED) -> str:
    """An instant on the clock of the timing's zone: ISO 8601 with the offset from UTC."""
    local = _local(timing, instant_ms, zones)
    return local.isoformat(timespec="milliseconds" if instant_ms % 1_000 else "seconds")


def mark_of(timing: Timing, instant_ms: int, zones: Zones = PACKAGED) -> str | None:
    """The mark of an instant of a timing; None for an ordinary local time."""
    local = _local(timing, instant_ms, zones)
    wall = local.replace(tzinfo=None)
    offset, other = local.utcoffset(), local.replace(fold=1 - local.fold).utcoffset()
    assert offset is not None
    assert other is not None
    if offset != other:
        return SECOND_PASS if local.fold else FIRST
    before = _local(timing, instant_ms - 1_000, zones).replace(tzinfo=None)
    if timing.elapsed or wall - before == SECOND:
        return None
    # The clocks changed at this instant; a time of the timing itself fires with gap skip too.
    plain = next_instant(replace(timing, gap="skip"), instant_ms - 1, zones)
    return None if plain == instant_ms else GAP


def _local(timing: Timing, instant_ms: int, zones: Zones) -> datetime:
    utc = EPOCH.replace(tzinfo=UTC) + timedelta(milliseconds=instant_ms)
    return utc.astimezone(zones.zone(timing.zone))
