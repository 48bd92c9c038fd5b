"""Bounds the memory of the process for writes of Redis clients: `resp-maxmemory`.

The keyspace does not count its bytes. The bound applies to the anonymous memory of the process
(without mapped files), so messages and connections count too. Measuring takes 20 us, so a
measurement is reused for a moment, or until many bytes were requested. A short command that creates
a large value (SETRANGE) announces its size first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delaylog.broker.host.machine import REAL
from delaylog.broker.host.system.process_memory import anonymous_bytes

LOOK_SECONDS: Final = 0.05
_LOOK_BYTES: Final = 8 << 20
"""After requests for this number of bytes the memory is measured again."""


class MemoryBound:
    """The memory bound of one process."""

    def __init__(
        self,
        bytes_max: int,
        used: Callable[[], int | None] = anonymous_bytes,
        now: Callable[[], float] = REAL.steady_s,
    ) -> None:
        """`bytes_max` = 0: no bound; `now` = seconds of a steady clock."""
        self._now = now
        self.bytes_max = bytes_max
        self._used = used
        self._seen = self._asked = 0
        self._next_look = 0.0

    def refuses(self, size: int = 0) -> bool:
        """Whether `size` more bytes exceed the bound."""
        if not self.bytes_max:
            return False
        self._asked += size
        now = self._now()
        if now >= self._next_look or self._asked >= _LOOK_BYTES:
            self._next_look = now + LOOK_SECONDS
            self._seen, self._asked = self._used() or 0, size
        return self._seen + self._asked > self.bytes_max
