"""What a checkpoint says about each hour."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class HourCounts:
    """What the log says about one hour, independent of what has reached its files."""

    rows: int = 0
    living: int = 0
    position: int = 0
    """End of the last frame that touched the hour."""
    keep_until_ms: int = 0
    """Until when a row that ended here must stay readable."""
    guests: int = 0
    """Living rows of other hours whose origin is here."""
    life: int = 0
    """Tells an hour from one of the same name that was removed before; not in a checkpoint."""

    @property
    def ended(self) -> bool:
        """Whether no row lives here or has its origin here."""
        return self.living == 0 and self.guests == 0
