"""The tick file: how far dispatch has got, and how far the log is durable.

In a cluster, replication writes the tick. The durable end of this node's log is written here as
well, since a long time may pass without a tick, and recovery takes log behind the recorded durable
end for a torn tail. A full disk may refuse the first write of a slot; a lost slot only proves less.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from delaylog.broker.engine.state import EngineState
from delaylog.storage.errors import DiskFullError
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.tick_slots import TickRecord, TickSlots


def tick_is_written(state: EngineState, ticks: TickSlots) -> bool:
    """Whether the file already has this tick and this durable end."""
    newest = ticks.newest
    return (
        newest is not None
        and newest.tick == state.tick
        and newest.durable_end == state.log.durable_position
    )


def write_tick(state: EngineState, ticks: TickSlots, now_ms: int) -> None:
    """Write the tick and the durable end into the older slot (not synced)."""
    record = TickRecord(state.epoch, state.tick, state.log.durable_position, now_ms)
    with suppress(DiskFullError):
        ticks.write(record)


def write_durable_end(state: EngineState, ticks: TickSlots) -> None:
    """Write the durable end; the tick stays as replication wrote it."""
    newest = ticks.newest or TickRecord(0, Tick(), 0, 0)
    durable = state.log.durable_position
    if newest.durable_end != durable:
        with suppress(DiskFullError):
            ticks.write(replace(newest, durable_end=durable))
