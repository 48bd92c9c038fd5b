"""What replication gives to the engine of a cluster member."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.tick_slots import TickSlots


@dataclass(frozen=True)
class Membership:
    """What an engine shares with replication, which outlives the engine."""

    log: PhysicalLog
    """The log, which is recovered already: replication needs more of it than a checkpoint does."""
    ticks: TickSlots
    committed: Callable[[], int]
    """The commit position; see `EngineState`."""
    drop_log: Callable[[int], int]
    """Removes log below a position, as far as no other node needs it."""
    may_append: Callable[[], bool] = lambda: True
    """Whether a leader accepts changes now; see `EngineState`."""
