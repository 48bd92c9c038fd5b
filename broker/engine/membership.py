"""What an engine that is one of a cluster is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.tick_slots import TickSlots


@dataclass(frozen=True)
class Membership:
    """What an engine that is one of a cluster shares with replication, which outlives it."""

    log: PhysicalLog
    """Recovered already: who is a member reads it for more than the newest checkpoint."""
    ticks: TickSlots
    committed: Callable[[], int]
    """Up to where the log is committed; see `EngineState`."""
    drop_log: Callable[[int], int]
    """Removes log below a position, as far as nobody else needs it."""
    may_append: Callable[[], bool] = lambda: True
    """Whether it takes changes while it leads; see `EngineState`."""
