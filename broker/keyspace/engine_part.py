"""What the engine asks of the keyspace. It finds this module by its name, if it is installed."""

from __future__ import annotations

from delaylog.broker.keyspace.effects import UnknownEffectError, apply_effects
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.snapshots import (
    ChunkCheck,
    SnapshotError,
    load_snapshot,
    write_snapshot,
)

__all__ = [
    "ChunkCheck",
    "Keyspace",
    "SnapshotError",
    "UnknownEffectError",
    "apply_effects",
    "load_snapshot",
    "write_snapshot",
]
