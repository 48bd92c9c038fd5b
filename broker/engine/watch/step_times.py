"""How long the steps of repeated work take, by the clock that the work is given."""

from __future__ import annotations

from typing import Final

from delaylog.broker.engine.watch.histogram import Histogram

BOUNDS_MS: Final = (1, 5, 10, 50, 100, 500, 1_000, 5_000, 30_000)


class StepTimes:
    """The steps of one kind of work, of which one runs at a time."""

    def __init__(self) -> None:
        self.steps: dict[str, Histogram] = {}
        """Milliseconds, by step."""
        self._from_ms = 0

    def begin(self, now_ms: int) -> None:
        """The first step begins."""
        self._from_ms = now_ms

    def end(self, step: str, now_ms: int) -> None:
        """`step` has ended, and the next one begins."""
        found = self.steps.get(step)
        if found is None:
            found = self.steps[step] = Histogram(BOUNDS_MS)
        # A clock that was set back measures nothing.
        found.note(max(now_ms - self._from_ms, 0))
        self._from_ms = now_ms
