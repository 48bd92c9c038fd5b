"""What a host gives to every engine of a folder: limits, randomness and callbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from delaylog.broker.engine.keyspace.keyspace_snapshots import SnapshotRunner
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.state import EngineState
from delaylog.storage.hours.hour_folders import OPEN_HOURS_MAX


@dataclass(frozen=True, slots=True)
class Setup:
    """Arguments of an engine that do not depend on its folder."""

    random: Random
    limits: Limits = field(default_factory=Limits)
    open_hours_max: int = OPEN_HOURS_MAX
    """Hours whose files stay open: five descriptors each."""
    progress: Callable[[str], None] = lambda text: None
    """Called with a line about each step of a start."""
    working: Callable[[str, int, int], None] = lambda what, done, total: None
    """Called with (what, done, total) during long steps of a start."""
    make_snapshot: SnapshotRunner | None = None
    """Makes snapshots of the keyspace; a served broker does it in a child process."""
    check: Callable[[EngineState], None] = lambda state: None
    """Called with the state of the folder before the engine changes it. May refuse the folder by an
    error.
    """
    hold: bool | None = None
    """Hold the broker from this start on (True), or release it (False)."""
    archive_hold: bool = False
    """Whether ended hours are kept until the archive releases them."""
