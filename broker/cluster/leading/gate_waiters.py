"""Who waits for a moment that comes for all at once.

Messages are ready, and no majority has taken a tick for a moment; or a leader goes and another one
comes.
"""

from __future__ import annotations

import asyncio


class GateWaiters:
    """Calls that are let through together."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, seconds: float) -> bool:
        """True when let through, False if the time is up."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(future)
        return True

    def open(self) -> None:
        """Let everybody through; whoever comes too late looks at the gate again."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)
