"""Lateness of a node: how late its event loop runs, how late messages were handed out, and why.

`LoopLag` sets a timer every ten milliseconds and records how late it fired; everything else that is
ready on the loop waits for about this time. An idle loop is sampled by the timer of its node alone,
since timers are most of the cost of an idle broker. `StallTrace` is for debugging: a thread that
logs the running code while a timer is overdue.

`RecentLateness` has the lateness of hand-outs in each of the last minutes, for the overview of the
dashboard. The host looks every 50 ms. What was handed out since a minute ended counts for the
minute of the look before, so a blocked loop leaves no message out. A restart begins with no
minutes. `watch_causes` tells the engine's timeline what only the host sees: stalls of the loop,
slow commits, starts.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import sub
from typing import TYPE_CHECKING, Final

from delaylog.broker.engine.topics.registry import Series
from delaylog.broker.engine.watch.histogram import Histogram, Lateness
from delaylog.broker.host.machine import Machine

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node


# ------------------------------------------------------------------------------ lag of the loop

SAMPLE_SECONDS: Final = 0.010
_IDLE_CPU_SECONDS: Final = 0.001
"""A loop whose thread ran for less than this since the last sample is idle."""
BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the histogram's buckets in seconds; one more bucket is for longer lags."""
STALL_SECONDS: Final = 0.1
"""A lag of at least this is noted as the cause of messages that were late meanwhile."""
TRACE_SECONDS: Final = 0.020
_FRAMES_MAX: Final = 12

log = logging.getLogger("delaylog.loop")


class LoopLag:
    """Samples one loop. All methods belong to the loop's thread."""

    def __init__(self, machine: Machine) -> None:
        self._now, self._processor_s = machine.steady_s, machine.processor_s
        self.histogram = Histogram(BOUNDS)
        """Samples, in seconds."""
        self.max_seconds = 0.0
        self.due = 0.0
        """When the next sample is due, by the steady clock; 0 if none is."""
        self._timer_due = 0.0
        self._timer_late = self._fired_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cpu_seconds = 0.0
        self.on_stall: Callable[[float], None] = lambda _: None
        """Called with the seconds for which the loop did not run, if that was long."""

    def start(self) -> None:
        """Sample the running loop until `stop`."""
        self._loop = asyncio.get_running_loop()
        self._arm(self._loop)

    def stop(self) -> None:
        """Take no more samples."""
        self._loop, self.due = None, 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def timer_fired(self) -> None:
        """The node's timer fired; the node occupies the loop until it calls `expect_timer`."""
        now = self._now()
        self._timer_late, self._timer_due = max(now - self._timer_due, 0.0), 0.0
        if self._loop is not None and self._timer is None:
            self._fired_at = self.due = now

    def expect_timer(self, seconds: float) -> None:
        """The node has set a timer that calls `timer_fired` after `seconds`."""
        now = self._now()
        self._timer_due = now + seconds
        if self._loop is None or self._timer is not None:
            return
        if self._fired_at:
            self.note(max(self._timer_late, now - self._fired_at))
            self._fired_at = 0.0
        self._arm(self._loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set a timer for the next sample, or leave it to the node's timer if the loop is idle."""
        before, self._cpu_seconds = self._cpu_seconds, self._processor_s()
        if self._cpu_seconds - before < _IDLE_CPU_SECONDS:
            self._timer, self.due = None, self._timer_due
            return
        self.due = self._now() + SAMPLE_SECONDS
        self._timer = loop.call_later(SAMPLE_SECONDS, self._sample, loop)

    def _sample(self, loop: asyncio.AbstractEventLoop) -> None:
        self.note(max(self._now() - self.due, 0.0))
        self._arm(loop)

    def note(self, seconds: float) -> None:
        """Add one sample."""
        self.histogram.note(seconds)
        self.max_seconds = max(self.max_seconds, seconds)
        if seconds >= STALL_SECONDS:
            self.on_stall(seconds)


class StallTrace:
    """Logs the stack of the loop's thread once for each stall of more than `TRACE_SECONDS`."""

    def __init__(self, lag: LoopLag) -> None:
        """Watches the loop of the calling thread, which `lag` samples."""
        self._lag = lag
        self._thread_id = threading.get_ident()
        self._ended = threading.Event()
        self.stacks: list[str] = []
        """The newest stacks, each from the outermost call to the innermost."""

    def start(self) -> None:
        """Watch from now on."""
        threading.Thread(target=self._watch, name="delaylog-stalls", daemon=True).start()

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()

    def _watch(self) -> None:
        seen = 0.0
        while not self._ended.wait(TRACE_SECONDS / 4):
            due = self._lag.due
            late = time.perf_counter() - due
            if due in (0.0, seen) or late < TRACE_SECONDS:
                continue
            seen = due
            frame = sys._current_frames().get(self._thread_id)
            calls = traceback.extract_stack(frame)[-_FRAMES_MAX:]
            stack = " > ".join(f"{c.filename.split('/')[-1]}:{c.lineno} {c.name}" for c in calls)
            self.stacks = [*self.stacks[-99:], stack]
            log.debug(
                "the event loop is blocked", extra={"late_ms": round(late * 1000), "stack": stack}
            )


# ---------------------------------------------------------------- hand-outs of the last minutes

MINUTE_MS: Final = 60_000
RECENT: Final = 90
"""Minutes."""


class RecentLateness:
    """The recent minutes of one broker. Counts are by bucket of lateness."""

    def __init__(self) -> None:
        self._series: Series | None = None
        self._minute = 0
        self._before: list[int] = []
        """Counts of the engine at the end of the last minute."""
        self._ended: deque[tuple[int, list[int]]] = deque(maxlen=RECENT)
        """Minutes that have ended, in order, with their counts."""

    def look(self, now_ms: int, series: Series) -> None:
        """End a minute if it is over; `series` = those of the present engine."""
        minute = now_ms // MINUTE_MS
        if series is not self._series:
            if self._series is None:
                self._minute = minute
            # The lateness of an engine begins at zero.
            self._series, self._before = series, Lateness().handed_out.counts
        if minute == self._minute:
            return
        # The clock may have been set back.
        while self._ended and self._ended[-1][0] >= self._minute:
            self._ended.pop()
        counts = series.total_lateness().handed_out.counts
        self._ended.append((self._minute, list(map(sub, counts, self._before))))
        self._minute, self._before = minute, counts

    def minutes(self, now_ms: int) -> list[dict[str, int | list[int]]]:
        """`from_ms` and `counts` of each recent minute that has ended."""
        now = now_ms // MINUTE_MS
        return [
            {"from_ms": minute * MINUTE_MS, "counts": counts}
            for minute, counts in self._ended
            if now - RECENT <= minute < now
        ]


# --------------------------------------------------------------------------------------- causes


def watch_causes(node: Node) -> None:
    """Note stalls and slow commits of a node from now on, and that its start has ended."""
    node.loop_lag.on_stall = partial(_note, node, "stall")
    node.log_commits.on_slow = partial(_note, node, "slow_disk")
    note_started(node)


def note_started(node: Node) -> None:
    """Note a start or take-over that has just ended; it began before the log was replayed."""
    timeline, now_ms = node.engine.state.timeline, node.clock.now_ms()
    timeline.node("catching_up", node.engine.started_ms, now_ms)


def _note(node: Node, cause: str, seconds: float) -> None:
    now_ms = node.clock.now_ms()
    node.engine.state.timeline.node(cause, now_ms - round(seconds * 1_000), now_ms)
