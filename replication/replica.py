"""What the parts of a node's replication share: its disk, and its outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from delaylog.replication.disk import ReplicaLog, TickStore
from delaylog.replication.events import Event
from delaylog.replication.messages import Message
from delaylog.replication.timing import Timing


@dataclass(frozen=True, slots=True)
class Replica:
    """One node's copy of the log."""

    node: int
    log: ReplicaLog
    ticks: TickStore
    timing: Timing
    send: Callable[[int, Message], None]
    tell: Callable[[Event], None]
    cut: Callable[[int], None]
    """Cuts the log, and reports it as an event."""
