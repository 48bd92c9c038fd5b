"""How much memory the process may hold while Redis clients add to it: `resp-maxmemory`.

The keyspace does not count its bytes: what is looked at is the anonymous memory of the process
(without files that are mapped), so messages and connections count too. A look costs 20 us, so the
last one is used again for a moment, or until much was asked for. Values that are made large by few
bytes (SETBIT) say their size before they are made.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

from delaylog.broker.host.process.process_memory import anonymous_bytes

LOOK_SECONDS: Final = 0.05
_LOOK_BYTES: Final = 8 << 20
"""So much that was asked for is worth another look."""


class MemoryBound:
    """One process's."""

    def __init__(self, bytes_max: int, used: Callable[[], int | None] = anonymous_bytes) -> None:
        """0 = no bound."""
        self.bytes_max = bytes_max
        self._used = used
        self._seen = self._asked = 0
        self._next_look = 0.0

    def refuses(self, size: int = 0) -> bool:
        """Whether so many bytes more are too many."""
        if not self.bytes_max:
            return False
        self._asked += size
        now = monotonic()
        if now >= self._next_look or self._asked >= _LOOK_BYTES:
            self._next_look = now + LOOK_SECONDS
            self._seen, self._asked = self._used() or 0, size
        return self._seen + self._asked > self.bytes_max
