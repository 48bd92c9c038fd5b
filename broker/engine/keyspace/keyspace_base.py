"""The sources from which a start restores the keyspace: a snapshot file, and later frames.

The effects of a frame must be applied exactly once, so the frames that the snapshot does not
contain are counted here. A start compares the counts with the frames that it finds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class KeyspaceBase:
    """A snapshot, and the frames since."""

    file: str = ""
    """Name of the snapshot; empty = an empty keyspace."""
    size: int = 0
    """Bytes of that file."""
    position: int = 0
    """The snapshot contains all KEYSPACE frames before this position, and none behind it."""
    frames: int = 0
    """KEYSPACE frames behind it so far."""
    bytes: int = 0
    """Bytes of their payloads."""

    def note(self, payload_size: int) -> None:
        """Count one more frame."""
        self.frames += 1
        self.bytes += payload_size

    def saved(self, position: int) -> dict[str, Any]:
        """What a checkpoint at `position`, the present end of the log, stores.

        While no frame has come, the log before `position` is not needed.
        """
        if not self.frames:
            self.position = position
        return asdict(self)

    def needed(self, position: int) -> int:
        """Position from which a checkpoint at `position`, taken now, would need the log."""
        return self.position if self.frames else position

    def move_up(self, made: KeyspaceBase) -> None:
        """Move to a newer snapshot; `made` has the counts of the frames that it contains."""
        self.file, self.size, self.position = made.file, made.size, made.position
        self.frames -= made.frames
        self.bytes -= made.bytes
