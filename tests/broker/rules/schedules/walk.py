"""Instants and wall times one by one, each search from the one before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from delaylog.broker.rules.schedules.instants import next_instant
from delaylog.broker.rules.schedules.rrule import Recurrence
from delaylog.broker.rules.schedules.timing import Timing
from delaylog.contract.calls.schedules import INSTANT_MS_MAX


def walk(timing: Timing, after_ms: int, until_ms: int = INSTANT_MS_MAX) -> Iterator[int]:
    """The instants after one time and before another."""
    at = next_instant(timing, after_ms)
    while at is not None and at < until_ms:
        yield at
        at = next_instant(timing, at)


def walls(recurrence: Recurrence, after: datetime) -> Iterator[datetime]:
    """The wall times of a rule after one."""
    at = recurrence.next_wall(after)
    while at is not None:
        yield at
        at = recurrence.next_wall(at)
