"""Recurring schedules as pure functions: from a timing to instants, and what a due instant does.

A package of values: it reads no clock and no file but the zones of the package tzdata, and it
imports the standard library, cronsim, tzdata and tables of `storage`. The engine keeps the state of
a schedule and asks here. Start with `timing.py`, then `instants.py`, then `wall_clock.py`.
"""

from delaylog.broker.rules.schedules.explain import explain
from delaylog.broker.rules.schedules.firings import (
    Action,
    CatchUp,
    decide_overlap,
    due_ms,
    first_after_outage,
)
from delaylog.broker.rules.schedules.instants import (
    LocalTime,
    instants_of,
    local_time,
    next_instant,
    next_instant_after_change,
)
from delaylog.broker.rules.schedules.timing import Timing, check_timing
from delaylog.broker.rules.schedules.zones import PACKAGED, Zones

__all__ = [
    "PACKAGED",
    "Action",
    "CatchUp",
    "LocalTime",
    "Timing",
    "Zones",
    "check_timing",
    "decide_overlap",
    "due_ms",
    "explain",
    "first_after_outage",
    "instants_of",
    "local_time",
    "next_instant",
    "next_instant_after_change",
]
