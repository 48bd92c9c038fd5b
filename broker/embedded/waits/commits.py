"""Group commit among threads: a thread that waits for the log syncs it for all that wait.

The first waiter writes and syncs what all threads have appended; later ones wait for the next turn,
and one of them takes it. Calls that do not wait leave it to a background thread. The fsync setting
decides what counts as safe: synced (`always`), or written to the operating system (`everysec`:
synced within a second; `never`: synced by checkpoints and at the end).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final, Literal, TypeAlias, get_args

from delaylog.broker.host.commits.group_commit import DISK_RETRY_SECONDS, GroupCommit
from delaylog.broker.host.commits.position_waiters import Completion
from delaylog.storage.errors import DiskFullError
from delaylog.storage.log.physical_log import PhysicalLog

Dial: TypeAlias = Literal["always", "everysec", "never"]
DIALS: Final = get_args(Dial)
EVERY_SECONDS: Final = 1.0


class ThreadCommits(GroupCommit):
    """Commits one log. Any thread may call, without the broker's lock unless `locked` is passed."""

    def __init__(
        self, log: PhysicalLog, dial: str, on_commit: Callable[[], None], *, threaded: bool
    ) -> None:
        """`on_commit` is called after a commit, on the thread that made it. Without `threaded`
        there is no background thread: the next waiter commits what nobody waited for.
        """
        super().__init__(log, written_is_safe=dial != "always")
        self._every_seconds = EVERY_SECONDS if dial == "everysec" else None
        self._on_commit = on_commit
        lock = threading.Lock()
        self._turn = threading.Condition(lock)
        """Notifies the threads that wait for the end of a commit."""
        self._work = threading.Condition(lock)
        """Notifies the background thread alone, only when a commit leaves it something to do."""
        self._committing = False
        self._asked = False
        self._stopping = False
        self._ending: BaseException | None = None
        self._ended = threading.Event()
        self._synced_at = monotonic()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="delaylog-log", daemon=True)
            self._thread.start()

    def position(self) -> int:
        """The log is safe below this position, as the fsync setting defines it."""
        log = self._log
        return log.written_position if self.written_is_safe else log.durable_position

    @property
    def overdue(self) -> bool:
        """Whether `everysec` requires a sync by now."""
        log = self._log
        return (
            self._every_seconds is not None
            and log.durable_position < log.end_position
            and monotonic() - self._synced_at >= self._every_seconds
        )

    # ------------------------------------------------------------------ waiting

    def reach(self, position: int, *, locked: bool = False) -> None:
        """Return once the log is safe up to `position`. Raises the error that ended the log.

        With `locked` the caller holds the broker's lock and publishes the commit itself.
        """
        while self.position() < position:
            if self._take_turn():
                self._commit(sync=not self.written_is_safe, tell=not locked)
                if self.disk_full:
                    # As in a server, callers wait for space, and nothing is rolled back.
                    if self._ending is not None:
                        raise self._ending
                    self._ended.wait(DISK_RETRY_SECONDS)

    def write(self, position: int) -> bool:
        """Write what is appended on this thread; returns whether `position` is safe now.

        A receive calls this under the broker's lock, and publishes the commit itself. The answer
        is False if the fsync setting needs a sync, another thread writes, or the write fails.
        """
        if not self.written_is_safe or self.failure is not None:
            return False
        log = self._log
        try:
            if log.written_position < position:
                if not log.write_pending(wait=False):
                    return False
                self.ended(None)
        except Exception as error:
            with self._turn:
                self._over(error)
            return False
        if self.waiters:
            # They belong to event loops; the background thread calls them.
            self.kick()
        return log.written_position >= position

    def sync(self, *, locked: bool = False) -> None:
        """Sync everything that is appended, whatever the fsync setting.

        Raises DiskFullError, or the error that ended the log.
        """
        position = self._log.end_position
        while self._log.durable_position < position or self._log.sealed:
            if self._take_turn():
                self._commit(sync=True, tell=not locked)
                if self.disk_full:
                    raise DiskFullError("the log cannot be written: the disk is full")

    def _take_turn(self) -> bool:
        """Take the turn to commit. If another thread has it, wait for its end and return False."""
        with self._turn:
            if self.failure is not None:
                raise self.failure
            if self._committing:
                self._turn.wait()
                return False
            self._committing = True
            return True

    def when_durable(self, position: int, call: Completion) -> None:
        """Call `call` once the log is safe up to `position`, at once if it is."""
        with self._turn:
            failure = self.failure
            if failure is None and self.position() < position:
                self.waiters.add(position, call)
                self._asked = True
                self._work.notify()
                return
        call(failure)

    def leave(self) -> None:
        """Leave the commit to the background thread. Raises the error that ended the log."""
        if self.failure is not None:
            raise self.failure
        self.kick()

    def _over(self, error: BaseException | None) -> None:
        """Record the end of a commit, and call or wake its waiters. Under `_turn`."""
        self.ended(error)
        self.waiters.reach(self.position())
        if self.failure is not None:
            self.waiters.fail_all(self.failure)
        self._turn.notify_all()

    def kick(self) -> None:
        """Have the background thread commit what is appended, without waiting for it."""
        if self._asked:
            # The thread resets it before it reads the end of the log, so it sees this append.
            return
        with self._turn:
            self._asked = True
            self._work.notify()

    # ------------------------------------------------------------------ committing

    def _commit(self, *, sync: bool, tell: bool = True) -> None:
        """One commit, by the thread that has the turn; it ends the turn.

        Ctrl-C may interrupt it: the log then still has everything pending that it had before.
        """
        error: Exception | None = None
        interruption: BaseException | None = None
        try:
            self._log.write_pending()
            if sync:
                self._log.sync()
                self._synced_at = monotonic()
        except Exception as failure:
            error = failure
        except BaseException as other:
            interruption = other
        with self._turn:
            self._committing = False
            if interruption is None:
                self._over(error)
            self._turn.notify_all()
            if self._asked or self._stopping:
                self._work.notify()
        if error is None and interruption is None and tell:
            self._on_commit()
        if interruption is not None:
            raise interruption

    def _run(self) -> None:
        while True:
            with self._turn:
                while self._committing or not (self._asked or self._stopping):
                    self._work.wait()
                if self._stopping:
                    return
                self._asked = False
                if self.failure is not None:
                    continue
                self._committing = True
            self._commit(sync=not self.written_is_safe)
            if self.disk_full:
                with self._turn:
                    self._asked = True
                    self._work.wait(DISK_RETRY_SECONDS)

    def end_waits(self, error: BaseException) -> None:
        """From now on raise this error in threads that wait for space on a full disk."""
        self._ending = error
        self._ended.set()

    def stop(self) -> None:
        """End the background thread after its present commit."""
        with self._turn:
            self._stopping = True
            self._work.notify()
        if self._thread is not None:
            self._thread.join()
