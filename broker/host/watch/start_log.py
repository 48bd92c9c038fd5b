"""Progress of a start: log lines while it is long, and the time of each reported step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

START_LOG_SECONDS: Final = 2.0

log = logging.getLogger("delaylog.serve")


class StartLog:
    """Logs the progress of a long start every few seconds, and times its steps."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns the seconds of a steady clock."""
        self._now = now
        self._said = self._began = now()
        self._step, self._step_began = "", 0.0
        self.seconds: dict[str, float] = {}
        """Seconds by step; `total` includes those that are too short to report."""

    def ended(self) -> dict[str, float]:
        """The times, once the start has ended."""
        self.seconds["total"] = self._now() - self._began
        return self.seconds

    def __call__(self, what: str, done: int, total: int) -> None:
        now = self._now()
        if what != self._step:
            self._step, self._step_began = what, now
        self.seconds[what] = now - self._step_began
        if now - self._said >= START_LOG_SECONDS:
            self._said = now
            share = f"{done / total:.0%}" if total else "?"
            log.info(f"{what}: {share}", extra={"done": done, "total": total})  # noqa: G004
