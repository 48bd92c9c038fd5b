"""Group commit on the loop: all frames of a turn are written and synced together at its end.

At most one job of the log thread runs at a time. `LogCommits` starts it, and notifies the node when
the log has advanced; the node then answers and dispatches. On a full disk it tries again until
there is space. Any other failure ends the node, and no call is answered after it. The log outlives
the engines that append to it, so this module does not know the engine.

`PositionWaiters` are callbacks that wait for a position, in order of position. The owner decides
what has to reach the position (this node's disk, a quorum, every node) and keeps one object for
each. Each callback is called exactly once: when its position is reached, or with the error if it
will not be.

`InlineSyncs` decides whether the loop syncs the log itself, when only one caller waits. The log
thread costs a single caller two thread switches, 65 us of CPU and 55 us of waiting, more than the
sync of a fast disk. But the loop does nothing else while it syncs. So the loop syncs only after a
run of quick syncs. After a slow one the thread takes over again, until there is another run; if
slow syncs are frequent, the required run doubles each time.

`SyncTimes` are figures that a single outlier does not change. A sample is one job of the log thread
that made bytes durable: the seconds of write and fdatasync, minus the time that a modest disk needs
to transfer these bytes, so that large batches do not look like a slow disk. Samples come from
regular commits only; nothing is written to measure. The caller passes times.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from statistics import median
from typing import Final, NamedTuple, Protocol, TypeAlias

from delaylog.broker.host.machine import Machine
from delaylog.broker.host.watch.timings import Timings
from delaylog.storage.errors import DiskFullError, NoDescriptorError
from delaylog.storage.log.physical_log import PhysicalLog

# ---------------------------------------------------------------------------- syncs on the loop

QUICK_SECONDS: Final = 0.000_5
"""A sync by the loop that takes longer is slow."""
HANDED_SECONDS: Final = 0.001
"""A job of the log thread that takes longer, measured from its request, is slow."""
ROW_MIN: Final = 16
ROW_MAX: Final = 1 << 16
SELDOM: Final = 128
"""A slow sync after more than this number of syncs by the loop resets the run to `ROW_MIN`."""


class InlineSyncs:
    """The recent syncs of one log."""

    def __init__(self) -> None:
        self._quick = 0
        self._row = ROW_MIN
        self._done = 0

    @property
    def likely_quick(self) -> bool:
        """Whether the loop may do the next sync."""
        return self._quick >= self._row

    def handed(self, seconds: float) -> None:
        """A job of the log thread took `seconds`, from its request."""
        self._quick = self._quick + 1 if seconds <= HANDED_SECONDS else 0

    def done(self, seconds: float) -> None:
        """A sync by the loop took `seconds`."""
        self._done += 1
        if seconds > QUICK_SECONDS:
            self._row = ROW_MIN if self._done > SELDOM else min(2 * self._row, ROW_MAX)
            self._quick = self._done = 0


# ----------------------------------------------------------------------- waiters for a position

Completion: TypeAlias = Callable[[BaseException | None], None]
"""Called with None once the position is reached, with the error if the wait has failed."""


class PositionWaiters:
    """Calls that wait for positions."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Completion]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, position: int, call: Completion) -> None:
        """Call back once `position` is reached; first come first served among equal positions."""
        waiting = self._waiting
        if waiting and waiting[-1][0] > position:
            # A reader may wait for an older position than the newest writer: keep the order.
            at = next(i for i, item in enumerate(waiting) if item[0] > position)
            waiting.insert(at, (position, call))
        else:
            waiting.append((position, call))

    async def wait(self, position: int) -> None:
        """Wait until `position` is reached; raises the error if the wait has failed."""
        await until_called(lambda call: self.add(position, call))

    def remove(self, position: int, call: Completion) -> None:
        """Remove a callback without calling it."""
        self._waiting.remove((position, call))

    def reach(self, position: int) -> None:
        """The log has reached `position`: call the callbacks that waited for it."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= position:
            waiting.popleft()[1](None)

    def fail_all(self, error: BaseException) -> None:
        """Call all present callbacks with `error`, but none that are added later."""
        waiting, self._waiting = self._waiting, deque()
        for _, call in waiting:
            call(error)


async def until_called(ask: Callable[[Completion], None]) -> None:
    """Pass a callback to `ask` and wait for its call; raises the error that it is called with."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ask(partial(finish, future))
    await future


def finish(future: asyncio.Future[None], error: BaseException | None = None) -> None:
    """Resolve a future, unless it is done or cancelled already."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


# ------------------------------------------------------------------------ recent times of syncs

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


# --------------------------------------------------------------------------------- group commit

DISK_RETRY_SECONDS: Final = 0.2
WRITE_INLINE_BYTES: Final = 128 << 10
"""The loop itself writes frames up to this total size; the log thread writes larger ones."""
SLOW_SECONDS: Final = 0.1
"""A commit that takes longer is told as a cause of late messages."""
WRITE_AHEAD_BYTES: Final = 16 << 10
"""The same limit for frames that are answered after their fsync. Writing on the loop saves the log
thread one wait for the interpreter between its write and its fsync, which only pays for small
writes."""

TURNS_TIMED_MAX: Final = 4_096
"""Turns whose commit is timed; without a majority the oldest ones are forgotten."""

WRITTEN_IS_SAFE: Final = ("interval", "everysec", "never")
"""Settings of fsync by which a written log is safe: then no caller waits for a sync."""
SYNC_EVERY_SECONDS: Final = {"everysec": 1.0, "never": inf}
"""How long written frames may wait for their sync by itself; otherwise until the next check."""

log = logging.getLogger("delaylog.node")


class Host(Protocol):
    """The owner of the log. It reads the safe position with `LogCommits.position()`."""

    def turn_ended(self) -> None:
        """A turn that appended ends."""

    def log_committed(self) -> None:
        """A turn was written, and the fsync setting counts written frames as safe."""

    def log_synced(self) -> None:
        """A job of the log thread has ended."""

    def fail(self, error: BaseException) -> None:
        """The log cannot be trusted any more."""


class LogCommits:
    """Commits a log and notifies its waiters. All methods belong to the loop's thread.

    On a full disk all waiters keep waiting, and nothing is rolled back. Any other error is
    permanent: the log is not written again.
    """

    def __init__(
        self,
        physical_log: PhysicalLog,
        loop: asyncio.AbstractEventLoop,
        host: Host,
        *,
        fsync: str = "always",
        machine: Machine,
        timings: Timings,
    ) -> None:
        self._log = physical_log
        self.written_is_safe = fsync in WRITTEN_IS_SAFE
        self._every_seconds = SYNC_EVERY_SECONDS.get(fsync, 0.0)
        self._synced_s = machine.steady_s()
        self.waiters = PositionWaiters()
        self.disk_full = False
        """Whether the last write of the log or of background work failed for lack of space."""
        self.commits = 0
        """The number of successful commits."""
        self.failure: BaseException | None = None
        """The permanent error of the log: after it, no further frames become safe."""
        self._timings = timings
        self._turns: deque[tuple[int, float]] = deque(maxlen=TURNS_TIMED_MAX)
        """(end of the log, time) of turns that are not committed yet, oldest first."""
        self._loop = loop
        self._host = host
        self._machine, self._now = machine, machine.steady_s
        self._thread = machine.log_worker(physical_log, self._from_log_thread)
        self._syncing = False
        self._syncing_to = self._syncing_from = 0
        self.sync_times = SyncTimes()
        """How long recent jobs of the log thread took."""
        self.on_slow: Callable[[float], None] = lambda _: None
        """Called with the seconds that a commit took, if that was long."""
        self._began_s = 0.0
        self._inline = InlineSyncs()
        self._scheduled = False
        self._written_position = 0
        self.position: Callable[[], int] = self._own_position
        """Returns the safe position, up to which calls may be answered. A cluster replaces it."""

    def start(self) -> None:
        """Start the log thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the log thread after its running job."""
        self._thread.stop()

    def exchange(self, physical_log: PhysicalLog) -> None:
        """Commit another log from now on. Call it after `stop`, when there are no waiters."""
        self._log = physical_log
        self._thread = self._machine.log_worker(physical_log, self._from_log_thread)
        self._syncing, self.disk_full = False, False
        self._turns.clear()
        self._written_position = 0
        self._thread.start()

    def always_sync(self) -> None:
        """From now on count only synced frames as safe, whatever the fsync setting is.

        For a shutdown, in which no check requests the fsync that the last checkpoint waits for.
        """
        self.written_is_safe = False

    # ------------------------------------------------------------------ commit

    def appended(self) -> None:
        """Frames were appended in this turn: commit them when the turn ends."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.commit_turn)

    def commit_turn(self) -> None:
        """Commit what this turn has appended so far."""
        self._scheduled = False
        self._turns.append((self._log.end_position, self._now()))
        try:
            self._commit()
        except Exception as error:
            # The loop would only log the error, and the waiters would wait for ever.
            self._host.fail(error)

    def _commit(self) -> None:
        self._host.turn_ended()
        if self.written_is_safe:
            # `fsync = "interval"`: answers follow the write, and the fsync follows within 50 ms.
            if self.write_through():
                self._written_position = self._log.written_position
                self._host.log_committed()
            else:
                self.kick()
        elif not self.disk_full:
            if self._syncing or self._log.pending_size > WRITE_AHEAD_BYTES:
                self.kick()
            elif self.write_through() and self._inline.likely_quick and len(self.waiters) == 1:
                self._sync_inline()
            else:
                self.kick()

    def _sync_inline(self) -> None:
        self._begin()
        error: Exception | None = None
        try:
            self._log.sync()
        except Exception as failure:
            error = failure
        ended = self._now()
        self._inline.done(ended - self._began_s)
        self._synced(error, ended)

    def sync_due(self) -> bool:
        """Whether a check has to have the log synced."""
        unsynced = self._log.end_position > self._log.durable_position
        overdue = self._now() - self._synced_s >= self._every_seconds
        return (unsynced and overdue) or bool(self._log.sealed)

    def kick(self) -> None:
        """Have the log thread write and sync the appended frames, unless a job is running."""
        if not self._syncing:
            self._begin()
            self._thread.kick()

    def _begin(self) -> None:
        self._syncing = True
        self._syncing_to = self._log.end_position
        self._syncing_from = self._log.durable_position
        self._began_s = self._now()
        self.sync_times.began_s = self._began_s

    def is_syncing(self, position: int) -> bool:
        """Whether a running job makes the log durable up to `position`."""
        return self._syncing and self.position() < position <= self._syncing_to

    def write_through(self) -> bool:
        """Write the appended frames now, without their fsync; False if the write must wait."""
        if self.disk_full or self._log.pending_size > WRITE_INLINE_BYTES:
            return False
        try:
            return self._log.write_pending(wait=False)
        except DiskFullError as error:
            self._log_failed(error)
            return False
        except Exception as error:
            self._host.fail(error)
            return False

    def _from_log_thread(self, error: BaseException | None) -> None:
        # A shutdown that fails closes the loop while the last job may still run. The RuntimeError
        # of the closed loop would print a traceback after the line that names the real failure.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._job_ended, error, self._now())

    def _job_ended(self, error: BaseException | None, ended: float) -> None:
        self._inline.handed(self._now() - self._began_s)
        self._synced(error, ended)

    def _synced(self, error: BaseException | None, ended: float) -> None:
        self._syncing = False
        if ended - self._began_s >= SLOW_SECONDS:
            self.on_slow(ended - self._began_s)
        self.sync_times.end(ended, self._log.durable_position - self._syncing_from)
        if error is not None:
            self._log_failed(error)
            return
        self._synced_s = ended
        self._timings.fsync.note(ended - self._began_s)
        self.disk_full = False
        self.commits += 1
        try:
            self._host.log_synced()
        except Exception as bug:
            self._host.fail(bug)
            return
        if self.waiters and self._log.durable_position < self._log.written_position:
            # `write_through` wrote more during this job. These frames are no longer pending, and
            # during a shutdown no periodic check requests their fsync.
            self.kick()

    def _log_failed(self, error: BaseException) -> None:
        if not isinstance(error, DiskFullError):
            self.failure = self.failure or error
        elif isinstance(error, NoDescriptorError):
            log.error("the log waits for a descriptor", extra={"why": str(error)})
        elif not self.disk_full:
            log.error(
                "the disk is full and the reserve is used up; everything waits for space",
                extra={"why": str(error)},
            )
        if self.failure is not None:
            self._host.fail(self.failure)
        else:
            self.found_full()

    def found_full(self) -> None:
        """The disk has no space left: commit nothing until a retry of the log succeeds."""
        self.disk_full = True
        self._loop.call_later(DISK_RETRY_SECONDS, self._retry_log)

    def _retry_log(self) -> None:
        if self.disk_full:
            self.kick()

    # ------------------------------------------------------------------ waiting

    def _own_position(self) -> int:
        durable = self._log.durable_position
        return max(durable, self._written_position) if self.written_is_safe else durable

    def reach(self, position: int) -> None:
        """The log is safe up to `position`: call the waiters for it."""
        turns = self._turns
        if turns and turns[0][0] <= position:
            now = self._now()
            while turns and turns[0][0] <= position:
                self._timings.commit_wait.note(now - turns.popleft()[1])
        self.waiters.reach(position)

    def when_durable(self, position: int, call: Completion) -> None:
        """Call back once the log is safe up to `position`, at once if it is, or with an error."""
        if self.position() >= position:
            call(None)
            return
        if not self._scheduled:
            self.appended()
        self.waiters.add(position, call)

    async def durable(self, position: int) -> None:
        """Wait until the log is safe up to `position`; raises the error if the wait fails."""
        if self.position() >= position:
            return
        self.appended()
        await self.waiters.wait(position)
