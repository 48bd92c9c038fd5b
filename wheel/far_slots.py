"""Far hours of the wheel: which hours beyond the next two days have stored entries.

They are the third and coarsest level of the wheel: a flag for each hour, without an expiration. So
an hour far ahead costs one byte, where a slot in the delay queue costs some 300.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GROWTH = 1_024


class FarSlots:
    """A set of hours, as flags."""

    def __init__(self) -> None:
        self._base = 0
        self._flags: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)

    def add(self, hours: npt.NDArray[np.int64]) -> None:
        """Flag hours that have entries; an hour may be listed several times."""
        low, high = int(hours.min()), int(hours.max())
        size = len(self._flags)
        if size == 0:
            self._base = low
        if low < self._base or high >= self._base + size:
            base = min(self._base, low)
            grown = np.zeros(max(self._base + size, high + 1 + _GROWTH) - base, np.bool_)
            grown[self._base - base : self._base - base + size] = self._flags
            self._base, self._flags = base, grown
        self._flags[hours - self._base] = True

    def __contains__(self, hour: int) -> bool:
        at = hour - self._base
        return 0 <= at < len(self._flags) and bool(self._flags[at])

    def first(self) -> int | None:
        """The first hour, or None."""
        at = int(self._flags.argmax()) if len(self._flags) else 0
        return self._base + at if len(self._flags) and self._flags[at] else None

    def pop_upto(self, hour: int) -> list[int]:
        """Remove and return the hours up to `hour`, ascending."""
        stop = min(max(hour + 1 - self._base, 0), len(self._flags))
        at = np.flatnonzero(self._flags[:stop])
        self._flags[:stop] = False
        return (at + self._base).tolist()
