"""The timer of replication: fires when the replication state machine has something to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class RoundTimer:
    """One timer. All methods belong to the loop's thread."""

    def __init__(self, fire: Callable[[], None], boot_ms: Callable[[], int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fire = fire
        self._boot_ms = boot_ms
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms = 0

    def arm(self, at_ms: int) -> None:
        """Fire at this time of the boot clock, or at the earlier time that is set already."""
        if self._handle is not None:
            if self._at_ms <= at_ms:
                return
            self._handle.cancel()
        self._at_ms = at_ms
        self._handle = self._loop.call_later(max(at_ms - self._boot_ms(), 0) / 1000, self._fired)

    def cancel(self) -> None:
        """Do not fire."""
        if self._handle is not None:
            self._handle.cancel()

    def _fired(self) -> None:
        self._handle = None
        self._fire()
