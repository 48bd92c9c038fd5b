"""What the requests of a node and its disk take, which requests are slow, which are refused."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Final

from delaylog.broker.engine.watch.histogram import Example, Histogram
from delaylog.broker.host.watch.quiet_log import QuietLog

DISK_BOUNDS: Final = (0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Seconds: from a disk with a protected cache to one that hangs."""
REQUEST_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""Seconds: from a merged send to a long poll."""
RECOVERY_BOUNDS: Final = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds: from an empty folder to one that loads a large keyspace."""

SLOW_SECONDS: Final = 1.0
"""A request that takes longer is logged: twenty times what one call may hold the loop."""

OTHER: Final = "other"
"""The call of requests that name none, such as a path that does not exist."""
SERIES_MAX: Final = 512
"""Most pairs of a face and a call that have a histogram. The tables of calls have half of them; a
name that a client chooses must not make more.
"""

log = logging.getLogger("delaylog.slow")


class SlowLog:
    """Logs requests that took longer than a threshold, at most one of a call in five seconds."""

    def __init__(self) -> None:
        self.threshold_s = SLOW_SECONDS
        """Without the wait that a receive asks for."""
        self.counts: Counter[str] = Counter()
        """Slow requests by face."""
        self._quiet = QuietLog(log)

    def note(self, face: str, call: str, seconds: float, request_id: str | None) -> None:
        """Count a slow request, and log it."""
        self.counts[face] += 1
        text = "slow request: %s took %.3f s"
        # By call, so that many slow receives do not hide the only slow send.
        self._quiet.tell(f"{face} {call}", text, call, seconds, face=face, request_id=request_id)


class Timings:
    """The histograms of one node, in seconds. They outlive its engines."""

    def __init__(self) -> None:
        self.fsync = Histogram(DISK_BOUNDS)
        """Jobs of the log thread: write and fdatasync."""
        self.commit_wait = Histogram(DISK_BOUNDS)
        """From the end of a turn that appended to its commit."""
        self.requests: dict[tuple[str, ...], Histogram] = {}
        """By (face, name of the call)."""
        self.recovery: dict[str, Histogram] = {}
        """Times in which the data folder was opened, by step: at the start, and by a member of a
        cluster that begins again.
        """
        self.follower_lag: dict[tuple[str, ...], Histogram] = {}
        """Seconds of log that each follower lacked; a member of a cluster fills it."""
        self.slow = SlowLog()
        self.problems: Counter[tuple[str, str]] = Counter(
            {("http", code): 0 for code in ("unauthorized", "forbidden")}
        )
        """Refusals and errors by (face, code); every face counts here what it answers."""

    def note_request(
        self,
        face: str,
        call: str,
        seconds: float,
        wait_ms: int = 0,
        request_id: str | None = None,
    ) -> Histogram:
        """Count one answered request, which asked to wait that long; returns its histogram."""
        found = self.requests.get((face, call))
        if found is None:
            if len(self.requests) >= SERIES_MAX:
                call = OTHER
            # Faces are few, so this may exceed the limit by one for each.
            found = self.requests.setdefault((face, call), Histogram(REQUEST_BOUNDS))
        slow = self.slow
        if seconds >= slow.threshold_s and seconds >= slow.threshold_s + wait_ms / 1000:
            slow.note(face, call, seconds, request_id)
        # `found.note(seconds)` inlined: its call took a quarter of this function's time.
        found.counts[bisect_left(REQUEST_BOUNDS, seconds)] += 1
        found.sum += seconds
        return found

    def note_trace(self, histogram: Histogram, trace_id: str, seconds: float, now_ms: int) -> None:
        """Keep a trace as the example of its bucket, at most one a second."""
        if histogram.wants_example(now_ms):
            histogram.keep_example(Example("trace_id", trace_id, seconds, now_ms))


def note_recovery(recovery: dict[str, Histogram], seconds_by_step: Mapping[str, float]) -> None:
    """Count the steps of one opening of the data folder."""
    for step, seconds in seconds_by_step.items():
        found = recovery.get(step)
        if found is None:
            found = recovery[step] = Histogram(RECOVERY_BOUNDS)
        found.note(seconds)
