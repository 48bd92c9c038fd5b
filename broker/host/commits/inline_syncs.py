"""Decides whether the loop syncs the log itself, when only one caller waits.

The log thread costs a single caller two thread switches, 65 us of CPU and 55 us of waiting, more
than the sync of a fast disk. But the loop does nothing else while it syncs. So the loop syncs only
after a run of quick syncs. After a slow one the thread takes over again, until there is another run
of quick syncs; if slow syncs are frequent, the required run doubles each time. The caller passes
durations in seconds.
"""

from __future__ import annotations

from typing import Final

QUICK_SECONDS: Final = 0.000_5
"""A sync by the loop that takes longer is slow."""
HANDED_SECONDS: Final = 0.001
"""A job of the log thread that takes longer, measured from its request, is slow."""
ROW_MIN: Final = 16
ROW_MAX: Final = 1 << 16
SELDOM: Final = 128
"""A slow sync after more than this number of syncs by the loop resets the run to `ROW_MIN`."""


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
        """A job of the log thread took `seconds`, from its request."""
        self._quick = self._quick + 1 if seconds <= HANDED_SECONDS else 0

    def done(self, seconds: float) -> None:
        """A sync by the loop took `seconds`."""
        self._done += 1
        if seconds > QUICK_SECONDS:
            self._row = ROW_MIN if self._done > SELDOM else min(2 * self._row, ROW_MAX)
            self._quick = self._done = 0
