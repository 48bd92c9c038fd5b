"""Whether the loop syncs the log itself, for a caller that waits alone.

The log thread costs a lone caller two switches between threads, more than a quick disk's sync. But
while the loop syncs it does nothing else: so it does only after a row of quick syncs, and after one
that was slow the thread has the work again, for a row twice as long if slow ones come often. The
caller passes durations in seconds.
"""

from __future__ import annotations

from typing import Final

QUICK_SECONDS: Final = 0.000_5
"""A sync of the loop that takes longer is slow."""
HANDED_SECONDS: Final = 0.001
"""The same of a job of the log thread, which counts from the moment it was asked for."""
ROW_MIN: Final = 16
ROW_MAX: Final = 1 << 16
SELDOM: Final = 128
"""A slow sync after so many quick ones of the loop is an accident."""


class InlineSyncs:
    """The recent syncs of one log."""

    def __init__(self) -> None:
        self._quick = 0
        self._row = ROW_MIN
        self._done = 0

    @property
    def likely_quick(self) -> bool:
        """Whether the loop may do the next sync."""
        return self._quick >= self._row

    def handed(self, seconds: float) -> None:
        """A job of the log thread took so long."""
        self._quick = self._quick + 1 if seconds <= HANDED_SECONDS else 0

    def done(self, seconds: float) -> None:
        """A sync of the loop took so long."""
        self._done += 1
        if seconds > QUICK_SECONDS:
            self._row = ROW_MIN if self._done > SELDOM else min(2 * self._row, ROW_MAX)
            self._quick = self._done = 0
