"""Group commit on a follower: one sync covers all frames that arrive within 3 ms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

SYNC_EVERY_SECONDS: Final = 0.003


class PacedSync:
    """Requests syncs, at most one in `SYNC_EVERY_SECONDS`."""

    def __init__(self, kick: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._kick = kick
        self._due: asyncio.TimerHandle | None = None
        self._kicked_at = 0.0

    def soon(self) -> None:
        """Frames were appended: request a sync, now or when the interval is over."""
        if self._due is None:
            wait = SYNC_EVERY_SECONDS - (self._loop.time() - self._kicked_at)
            if wait <= 0:
                self._now()
            else:
                self._due = self._loop.call_later(wait, self._now)

    def _now(self) -> None:
        self._due = None
        self._kicked_at = self._loop.time()
        self._kick()

    def cancel(self) -> None:
        """Request no sync any more: the log is about to be closed."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
