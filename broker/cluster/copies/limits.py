"""Limits of copies between nodes: each with its name and the reason for its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delaylog.broker.backup.copying import PART_BYTES
from delaylog.replication.wire import PIECE_BYTES_MAX

SYNC_BYTES: Final = 32 << 20
"""Bytes between two syncs of the receiver, so that its disk never has gigabytes to write back."""


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """Seconds and bytes; tests use other values, for which the relations below must hold."""

    window_bytes: int = 2 << 20
    """Sent and not written by the receiver yet. Messages of replication to that node queue behind
    it: some 20 ms at 1 Gbit/s."""
    stall_seconds: float = 60.0
    """A copy without progress for this long is given up, as files and log are kept for it."""
    install_seconds: float = 600.0
    """How long log is kept for a node that has a whole copy and rebuilds its id index."""
    pause_seconds: float = 2.0
    """Between a copy that failed and the next offer."""
    pause_seconds_max: float = 60.0
    """The pause doubles up to this while the receiver gives up: its disk may be too small."""

    def __post_init__(self) -> None:
        assert PART_BYTES <= PIECE_BYTES_MAX, "a part of a file fits one message"
        assert self.window_bytes >= 2 * PART_BYTES, "one is written while the next is under way"
