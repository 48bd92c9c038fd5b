"""The event loop of an embedded broker: it waits for timers and for other threads, not for sockets.

Its thread is woken by a lock, which takes a third of the time of a pipe. Its time can be moved
ahead, so that timers follow a clock that the program moves.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any


class ThreadLoop(asyncio.BaseEventLoop):
    """An event loop without a selector."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = self
        self._woken = threading.Lock()
        self._woken.acquire()
        self.ahead_s = 0.0
        """How far its time is ahead of the monotonic clock."""
        self.on_idle: Callable[[], bool] = lambda: False
        """Called when nothing is ready and no timer is due; returns whether to look again."""

    def time(self) -> float:
        """Seconds of the monotonic clock, plus what the program has moved."""
        return monotonic() + self.ahead_s

    def select(self, timeout: float | None) -> Sequence[Any]:
        """Wait until another thread calls, for at most `timeout` seconds (None = for ever)."""
        if (timeout is None or timeout > 0) and not self.on_idle():
            self._woken.acquire(timeout=-1 if timeout is None else timeout)
        return ()

    def _process_events(self, events: Sequence[Any]) -> None:
        """There are no events of sockets."""

    def _write_to_self(self) -> None:
        # Several calls may wake it before it wakes.
        with suppress(RuntimeError):
            self._woken.release()
