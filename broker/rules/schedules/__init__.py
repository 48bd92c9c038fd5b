"""Recurring schedules as pure functions: from a timing to instants, and what a due instant does.

A package of values: it reads no clock and no file but the zones of the package tzdata, and it
imports the standard library, cronsim, tzdata and tables of `storage`. The engine keeps the state of
a schedule and asks here. Start with `timing.py`, then `instants.py`, then `wall_clock.py`.
"""

from delaylog.broker.rules.schedules.instants import instants_of

__all__ = ["instants_of"]
