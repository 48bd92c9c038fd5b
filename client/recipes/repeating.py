"""Do something again and again in a thread of its own until told to stop.

The one rule: one failed turn never ends the thread; it is logged and the next turn comes. Turns
come at a fixed rate, the first after one period; a turn that takes longer skips what it missed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Repeating:
    """A daemon thread that calls `turn` every `period_ms`."""

    def __init__(self, name: str, turn: Callable[[], object], *, period_ms: float) -> None:
        if period_ms <= 0:
            raise ValueError("a period is more than 0 ms")
        self._turn = turn
        self._period_s = period_ms / 1000
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end and wait for the turn in hand."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        turn_at = time.monotonic() + self._period_s
        while not self._stopped.wait(max(0.0, turn_at - time.monotonic())):
            try:
                self._turn()
            except Exception:
                logger.exception("a turn of %s failed", self._thread.name)
            # Missed turns are not made up for.
            turn_at = max(turn_at + self._period_s, time.monotonic())
