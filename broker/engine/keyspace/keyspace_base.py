"""What the keyspace comes back from: a snapshot file, and frames of the log behind it.

The effects of a frame are applied exactly once, so it is counted here which of them the snapshot
does not hold; the counts also tell a start that it has found them all.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class KeyspaceBase:
    """Where the keyspace begins and how far it has got since."""

    file: str = ""
    """Name of the snapshot; empty = it began with nothing."""
    size: int = 0
    """Bytes of that file."""
    position: int = 0
    """All KEYSPACE frames in front of it are in the snapshot, none behind it is."""
    frames: int = 0
    """KEYSPACE frames behind it so far."""
    bytes: int = 0
    """Their payloads."""

    def note(self, payload_size: int) -> None:
        """One more frame."""
        self.frames += 1
        self.bytes += payload_size

    def saved(self, position: int) -> dict[str, Any]:
        """What a checkpoint at `position`, the end of the log so far, says about it.

        As long as no frame came, the log in front of it is not needed.
        """
        if not self.frames:
            self.position = position
        return asdict(self)

    def needed(self, position: int) -> int:
        """From where on a checkpoint at `position`, taken now, would need the log."""
        return self.position if self.frames else position

    def move_up(self, made: KeyspaceBase) -> None:
        """Another snapshot holds what this counted when it was begun: `made` has those counts."""
        self.file, self.size, self.position = made.file, made.size, made.position
        self.frames -= made.frames
        self.bytes -= made.bytes
