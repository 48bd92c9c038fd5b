"""Settings of the audit log, and which calls it records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ADMINISTRATIVE: Final = frozenset({"admin", "operate"})
"""Rights whose calls are carried out only after their line is durable."""
CHANGING: Final = ADMINISTRATIVE | {"change"}
MODES: Final = ("changes", "all", "off")
FILE_MB_MAX: Final = 1_024


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """What is recorded, and for how long."""

    mode: str = "changes"
    file_bytes: int = 64 << 20
    """A new file begins when the current one has this size, or is a day old."""
    keep_days: int = 400
    """Files whose lines are all older are removed; 0 = no limit."""
    keep_files: int = 0
    """Most files that are kept; 0 = no limit."""

    def records(self, right: str | None) -> bool:
        """Whether calls that need this right are recorded, whatever their outcome."""
        return self.mode == "all" or (self.mode == "changes" and right in CHANGING)
