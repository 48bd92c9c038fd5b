"""What the engine asks of the keyspace. It finds this module by its name, if it is installed."""

from __future__ import annotations

from delaylog.broker.keyspace.applying import apply_effects
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.running.applier import UnknownEffectError
from delaylog.broker.keyspace.snapshots.layout import SnapshotError
from delaylog.broker.keyspace.snapshots.reading import ChunkCheck, load_snapshot
from delaylog.broker.keyspace.snapshots.writing import write_snapshot

__all__ = [
    "ChunkCheck",
    "Keyspace",
    "SnapshotError",
    "UnknownEffectError",
    "apply_effects",
    "load_snapshot",
    "write_snapshot",
]
