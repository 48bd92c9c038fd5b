"""What an engine gets from its host, the same for every engine of a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from delaylog.broker.engine.keyspace.keyspace_snapshots import SnapshotRunner
from delaylog.broker.engine.limits import Limits


@dataclass(frozen=True, slots=True)
class Setup:
    """How an engine is set up."""

    random: Random
    limits: Limits = field(default_factory=Limits)
    progress: Callable[[str], None] = lambda text: None
    """Told what a start has done."""
    working: Callable[[str, int, int], None] = lambda what, done, total: None
    """Told how far a start is with what takes long."""
    make_snapshot: SnapshotRunner | None = None
    """Makes snapshots of the keyspace: in another process, where one serves."""
    archive_hold: bool = False
    """Ended hours stay until they are released."""
