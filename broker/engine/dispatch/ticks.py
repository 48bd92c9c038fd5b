"""The tick on the disk: how far dispatch is, and how far the log is durable.

A cluster's tick is written by replication; how far this disk has the log is said here too, since no
tick may come for long: what is not said to be durable passes for a torn tail. A full disk may
refuse a slot its first bytes; a lost slot only proves less.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from delaylog.broker.engine.state import EngineState
from delaylog.storage.errors import DiskFullError
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.tick_slots import TickRecord, TickSlots


def tick_is_noted(state: EngineState, ticks: TickSlots) -> bool:
    """Whether the disk says where dispatch is, and how far the log is durable."""
    newest = ticks.newest
    return (
        newest is not None
        and newest.tick == state.tick
        and newest.durable_end == state.log.durable_position
    )


def write_tick(state: EngineState, ticks: TickSlots, now_ms: int) -> None:
    """Put tick and durable end into the older slot (not synced)."""
    record = TickRecord(state.epoch, state.tick, state.log.durable_position, now_ms)
    with suppress(DiskFullError):
        ticks.write(record)


def write_durable_end(state: EngineState, ticks: TickSlots) -> None:
    """The same for one of a cluster: the tick stays as replication wrote it."""
    newest = ticks.newest or TickRecord(0, Tick(), 0, 0)
    durable = state.log.durable_position
    if newest.durable_end != durable:
        with suppress(DiskFullError):
            ticks.write(replace(newest, durable_end=durable))
