"""The definitions that were used last, unpacked, within a bound of bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from delaylog.broker.engine.schedules.schedule import Progress, Schedule

BYTES_MAX: Final = 16 << 20
"""Room for some 20,000 small definitions."""
ENTRY_BYTES: Final = 700
"""What an unpacked definition takes besides its message, about."""

_NO_PROGRESS: Final = Progress()


class DefinitionCache:
    """Schedules without progress, by number; the least recently used one goes first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[int, tuple[Schedule, int]] = OrderedDict()
        self._bytes = 0

    def get(self, number: int) -> Schedule | None:
        """A definition that is here."""
        found = self._entries.get(number)
        if found is None:
            return None
        self._entries.move_to_end(number)
        return found[0]

    def put(self, one: Schedule, size: int) -> None:
        """Enter or replace a definition whose packed form has `size` bytes."""
        self.drop(one.number)
        cost = ENTRY_BYTES + size
        if cost > BYTES_MAX // 8:
            return
        self._entries[one.number] = one.at(_NO_PROGRESS), cost
        self._bytes += cost
        while self._bytes > BYTES_MAX:
            _, (_, gone) = self._entries.popitem(last=False)
            self._bytes -= gone

    def drop(self, number: int) -> None:
        """Remove a definition if it is here."""
        found = self._entries.pop(number, None)
        if found is not None:
            self._bytes -= found[1]
