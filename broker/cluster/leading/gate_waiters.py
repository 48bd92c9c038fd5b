"""Calls that wait for one event and are released together.

They wait for the gate to open (a majority has not taken a tick recently), or for the next leader.
"""

from __future__ import annotations

import asyncio


class GateWaiters:
    """The waiting calls."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, seconds: float) -> bool:
        """Wait to be released; False if the time is up."""
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
        """Release all waiting calls. A call that starts to wait later is not released by this."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)
