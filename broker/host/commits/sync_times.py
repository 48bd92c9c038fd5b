"""How long recent group commits took, in figures that a single outlier does not change.

Each sample is one job of the log thread that made bytes durable. It is the time of write and
fdatasync, minus the time that a modest disk needs to transfer these bytes, so that large batches do
not look like a slow disk. Samples come from regular commits only; nothing is written to measure.
The caller passes the time.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final, NamedTuple

WINDOW_SECONDS: Final = 5.0
"""Samples older than this count only while there are fewer than `SAMPLES_MIN` newer ones."""
SAMPLES_MIN: Final = 5
KEPT_SECONDS: Final = 60.0
"""On an idle node the newest samples count for this time, so that a slow disk is still known after
the traffic has stopped."""
SAMPLES_MAX: Final = 256
TRANSFER_BYTES_PER_SECOND: Final = 64 << 20
STALLED_SECONDS: Final = 1.0
"""A job that has run for longer than this is reported as the median, although it has not ended."""


class SyncFigures(NamedTuple):
    """Milliseconds, at least 1; 0 without a sample."""

    median_ms: int = 0
    max_ms: int = 0
    fresh: bool = False
    """Whether a job has ended within `STALLED_SECONDS`, or has run for longer than that."""
    hangs: bool = False
    """Whether a job has run for longer than `STALLED_SECONDS` and has not ended."""


class SyncTimes:
    """The samples of one log."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)
        """(end of the job, its duration), oldest first."""
        self.began_s: float | None = None
        """When the running job began; whoever begins one sets it."""

    def end(self, now: float, size: int) -> None:
        """The job has ended and made `size` bytes durable; with 0 bytes it does not count."""
        began, self.began_s = self.began_s, None
        if size > 0 and began is not None:
            self._samples.append((now, max(now - began - size / TRANSFER_BYTES_PER_SECOND, 0.0)))

    def recent(self, now: float) -> SyncFigures:
        """The figures as of `now`."""
        newest = list(self._samples)[-SAMPLES_MIN:]
        taken = [took for at, took in self._samples if now - at <= WINDOW_SECONDS]
        if len(taken) < SAMPLES_MIN:
            taken = [took for at, took in newest if now - at <= KEPT_SECONDS]
        running = 0.0 if self.began_s is None else now - self.began_s
        if running >= STALLED_SECONDS:
            return SyncFigures(_ms(running), _ms(max([running, *taken])), fresh=True, hangs=True)
        if not taken:
            return SyncFigures()
        fresh = now - self._samples[-1][0] <= STALLED_SECONDS
        return SyncFigures(_ms(median(taken)), _ms(max(taken)), fresh)


def _ms(seconds: float) -> int:
    return max(round(seconds * 1000), 1)
