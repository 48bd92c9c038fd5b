"""The values that a checkpoint has for each hour."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class HourCounts:
    """The counts of one hour by the log, whether or not its rows are in files yet."""

    rows: int = 0
    living: int = 0
    position: int = 0
    """End of the last frame that touched the hour."""
    keep_until_ms: int = 0
    """Time until which an ended row of the hour must stay readable."""
    guests: int = 0
    """Living rows in other hours that have their origin in this hour."""
    life: int = 0
    """Distinguishes an hour from a removed one of the same name; not in a checkpoint."""

    @property
    def ended(self) -> bool:
        """Whether the hour has no living row, and no living row elsewhere has its origin in it."""
        return self.living == 0 and self.guests == 0
