"""Group commit on the loop: all frames of a turn are committed together when the turn ends.

At most one job of the log thread runs at a time. This module starts it, and notifies the node when
the log has advanced; the node then answers and dispatches. On a full disk this module tries again
until there is space. Any other failure ends the node, and no call is answered after it. The log
outlives the engines that append to it, so this module does not know the engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Final, Protocol

from delaylog.broker.host.commits.inline_syncs import InlineSyncs
from delaylog.broker.host.commits.position_waiters import Completion, PositionWaiters
from delaylog.broker.host.commits.sync_times import SyncTimes
from delaylog.broker.host.machine import Machine
from delaylog.broker.host.watch.timings import Timings
from delaylog.storage.errors import DiskFullError, NoDescriptorError
from delaylog.storage.log.physical_log import PhysicalLog

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
