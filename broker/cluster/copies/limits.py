"""Every span and bound of copies between nodes by its name, and why it is what it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delaylog.broker.backup.copying import PART_BYTES
from delaylog.replication.wire import PIECE_BYTES_MAX

SYNC_BYTES: Final = 32 << 20
"""Written between two syncs of the receiver, so that its disk never has gigabytes to write back."""


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """Seconds and bytes; tests take others, the relations below must hold."""

    window_bytes: int = 2 << 20
    """Sent and not written by the receiver yet. What replication says to that node waits behind
    it: some 20 ms on a line of a gigabit a second."""
    stall_seconds: float = 60.0
    """Without progress for so long a copy is given up: files are held and log is kept for it."""
    install_seconds: float = 600.0
    """How long log is kept for a node that has all of a copy: it rebuilds its id index."""
    pause_seconds: float = 2.0
    """After a copy that did not work out, before the next is offered."""
    pause_seconds_max: float = 60.0
    """Twice as long each time that the receiver gives it up, up to this: its disk may be too
    small."""

    def __post_init__(self) -> None:
        assert PART_BYTES <= PIECE_BYTES_MAX, "a part of a file fits one message"
        assert self.window_bytes >= 2 * PART_BYTES, "one is written while the next is under way"
