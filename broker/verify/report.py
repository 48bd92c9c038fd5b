"""The report of a verification: damage, and notes about things that a start repairs by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """A damaged place, or a note about one."""

    path: str
    """Relative to the data folder."""
    position: int
    """Byte offset in the file; in the physical log, the position."""
    what: str

    def line(self) -> str:
        """For people."""
        return f"{self.path} at {self.position}: {self.what}"

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {"path": self.path, "position": self.position, "what": self.what}


@dataclass(slots=True)
class Report:
    """Damage and notes of one folder, and the amounts that were read."""

    damage: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    files: int = 0
    bytes_read: int = 0
    frames: int = 0
    rows: int = 0
    states: int = 0

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damage

    def damaged(self, path: str, position: int, what: str) -> None:
        """Add damage."""
        self.damage.append(Finding(path, position, what))

    def note(self, path: str, position: int, what: str) -> None:
        """Add a finding that is not damage."""
        self.notes.append(Finding(path, position, what))

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "sound": self.sound,
            "files": self.files,
            "bytes": self.bytes_read,
            "frames": self.frames,
            "rows": self.rows,
            "states": self.states,
            "damage": [finding.as_dict() for finding in self.damage],
            "notes": [finding.as_dict() for finding in self.notes],
        }
