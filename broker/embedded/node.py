"""The node of an embedded broker: an engine, its clock, one lock, and the calls that wait for news.

All decisions are made under the lock, on the calling thread. Handlers of `broker/calls` use this
node like a server's `Node`, so both answer a call alike. What the handlers await is a `Step`, which
the driver of the coroutine (`waits/driving.py`) carries out. With a wall clock a thread does the
upkeep. With a manual clock the thread that moves the clock, or makes a call, does it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, cast

from delaylog.broker.embedded.chores import ChoreRunner
from delaylog.broker.embedded.clocks import Clock, ManualClock, WallClock
from delaylog.broker.embedded.closed import ClosedError, why_closed
from delaylog.broker.embedded.direct import DirectTurn
from delaylog.broker.embedded.in_process import register
from delaylog.broker.embedded.waits.commits import ThreadCommits
from delaylog.broker.embedded.waits.steps import Job, Pause, Safe
from delaylog.broker.embedded.waits.waiting import Waiting
from delaylog.broker.engine.engine import Engine
from delaylog.broker.host.commits.position_waiters import Completion
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.node_role import Standalone
from delaylog.broker.host.slices import drive
from delaylog.broker.host.system.folder_lock import retention_suspended
from delaylog.broker.host.system.space import Space
from delaylog.broker.host.watch.recent_lateness import RecentLateness
from delaylog.storage.work import Work

if TYPE_CHECKING:
    from delaylog.broker.calls.serving_node import ServingNode

_TURNS_MAX: Final = 64
"""Most slices of releases that one call runs; the next call runs more."""


class EmbeddedNode:
    """Runs an engine for threads. Methods need the lock (`locked`), unless "No lock" is stated."""

    suspended = False
    machine = REAL
    time_s = staticmethod(monotonic)

    def __init__(self, engine: Engine, clock: Clock, *, dial: str) -> None:
        self.engine = engine
        self.clock = clock
        self.role = Standalone(self)
        self.waiters = Waiting(self.tell_news)
        self.turn = DirectTurn(as_host(self))
        self.manual = isinstance(clock, ManualClock)
        """Whether the clock is manual: then only calls and moves of the clock do any work."""
        self.lock = threading.Lock()
        self._news = threading.Condition(self.lock)
        self._callers: set[int] = set()
        self._listeners: set[Callable[[], None]] = set()
        self._failure: BaseException | None = None
        self.closed = False
        self.forked = False
        self.commits = ThreadCommits(
            engine.state.log, dial, self._committed, threaded=not self.manual
        )
        self.space = Space(
            lambda: self.engine, lambda: self.commits.disk_full, self.machine.steady_s
        )
        self.recent_lateness = RecentLateness()
        self.chores = ChoreRunner(self)
        engine.upkeep.files_pinned = self._files_pinned
        register(self)

    def start(self) -> None:
        """Create the reserve, do everything that is due, and start the upkeep thread. No lock."""
        with self.locked():
            if self.manual:
                # Count from now: the first checkpoint is due after a day of this clock.
                self.engine.upkeep.checkpoint_ms = self.clock.now_ms()
            self.engine.create_reserve()
            self.run_due()
        if isinstance(self.clock, WallClock):
            self.clock.on_jump = self._clock_jumped
        if not self.manual:
            self.chores.start()

    def _files_pinned(self) -> bool:
        # As in a server, space for messages has priority over a backup that holds files.
        enough = self.free_bytes() >= 2 * self.engine.limits.disk_reserve_bytes
        return enough and retention_suspended(self.engine.folder)

    # ------------------------------------------------------------------ the lock

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock; upkeep lets callers have it first. Raises ClosedError."""
        self.enter()
        try:
            yield
        finally:
            self.lock.release()

    def enter(self) -> None:
        """Take the lock, for `lock.release()` to release. Raises ClosedError, without the lock."""
        if not self.lock.acquire(blocking=False):
            mine = threading.get_ident()
            self._callers.add(mine)
            self.lock.acquire()
            self._callers.discard(mine)
        if self.closed or self._failure is not None:
            self.lock.release()
            raise why_closed(self._failure, forked=self.forked)

    @property
    def wanted(self) -> bool:
        """Whether a caller waits for the lock. No lock."""
        return bool(self._callers)

    def fail(self, error: BaseException) -> None:
        """Refuse all further calls: the disk or the state in memory cannot be trusted any more."""
        self._failure = self._failure or error
        self.tell_news()

    # ------------------------------------------------------------------ the turn

    def run_due(self, *, unpaced: bool = False) -> None:  # noqa: ARG002 (the node's form)
        """Release due messages and wake the calls that wait for them."""
        now_ms = self.clock.now_ms()
        if self.engine.state.exposures:
            # The thread that committed a send may not have shown it to the wheel yet, although the
            # sender has its answer.
            self.show_committed(now_ms)
        self.run_due_by(now_ms)

    def run_due_by(self, now_ms: int) -> None:
        """The same, for a caller that has just read the clock."""
        if self.manual:
            self.chores.run_all()
        else:
            engine = self.engine
            for _ in range(_TURNS_MAX):
                wake_ms = engine.next_wake_ms()
                if wake_ms is None or wake_ms > now_ms or not engine.run_due(now_ms):
                    break
            if engine.state.log.pending_size:
                self.commits.kick()
            loader = engine.dispatcher.loader
            if loader.loading or loader.laying_out:
                self.chores.kick()
        self.wake_ready()

    def next_stop_ms(self) -> int | None:
        """The next expiry, at which a manual clock has to stop: its time is recorded. No lock."""
        with self.locked():
            state = self.engine.state
            ends = (
                state.leases.next_expiry_ms(),
                state.claims.next_expiry_ms(),
                state.keyspace.next_expiry_ms(),
            )
            return min((end for end in ends if end is not None), default=None)

    def clock_moved(self) -> None:
        """Do everything that is due after a move of a manual clock. No lock."""
        with self.locked():
            self.run_due()
            # A call may also wait for the time itself.
            self.tell_news()

    def _clock_jumped(self, jump_ms: int) -> None:
        # The caller has read the clock, so it holds the lock.
        self.engine.jump_ahead(jump_ms, self.clock.now_ms())
        self.commits.kick()

    def _committed(self) -> None:
        """Show newly committed frames to the wheel and release due messages. No lock."""
        with self.lock:
            if self.closed or self._failure is not None:
                return
            # The node has recorded an error; it must not end the thread that commits.
            with suppress(Exception):
                self._release_committed()

    def written(self, position: int) -> bool:
        """Make the log safe up to `position`, if a write is enough for that; return whether it is.

        Then show the newly committed frames to the wheel, and release due messages.
        """
        if not self.commits.write(position):
            return False
        if not self.manual and not self.engine.state.exposures:
            self.wake_ready()
        else:
            self._release_committed()
        return True

    def _release_committed(self) -> None:
        """Show committed frames to the wheel and release due messages; an error ends the node."""
        try:
            now_ms = self.clock.now_ms()
            self.show_committed(now_ms)
            self.run_due_by(now_ms)
        except ClosedError:
            # The broker was closed while this call waited for space on a full disk.
            raise
        except BaseException as error:
            self.fail(error)
            raise

    def show_committed(self, now_ms: int | None = None) -> None:
        """Show committed frames to the wheel; `now_ms` = the time, if it was just read."""
        self.engine.commit(
            self.commits.position(), self.clock.now_ms() if now_ms is None else now_ms
        )

    def wake_ready(self) -> None:
        """Wake waiting calls if messages became ready or a group was dropped."""
        state = self.engine.state
        if state.marks.newly_ready or state.marks.dropped:
            state.marks.newly_ready.clear()
            state.marks.dropped.clear()
            self.tell_news()

    def tell_news(self) -> None:
        """Wake all waiting calls, which then check again."""
        self._news.notify_all()
        for listener in self._listeners:
            listener()

    # ------------------------------------------------------------------ waiting for news

    def seconds_to_wait(self, seconds: float) -> float:
        """How long to wait for news: until the wheel is due, as the waiting call turns it."""
        if self.manual:
            return seconds
        wake_ms = self.engine.next_wake_ms()
        if wake_ms is None:
            return seconds
        return min(seconds, max(wake_ms - self.clock.now_ms(), 1) / 1000)

    def wait_for_news(self, seconds: float) -> None:
        """Release the lock until there is news, or `seconds` have passed."""
        self._news.wait(self.seconds_to_wait(seconds))
        self.check_open()

    def check_open(self) -> None:
        """Raise ClosedError if the broker is closed or has failed. No lock."""
        if self.closed or self._failure is not None:
            raise why_closed(self._failure, forked=self.forked)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` at any news, under the lock, on any thread."""
        self._listeners.add(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Stop calling `listener`."""
        self._listeners.discard(listener)

    # ------------------------------------------------------------------ what handlers ask for

    @property
    def stopping(self) -> bool:
        """Whether the broker is closed or being closed."""
        return self.closed

    def state_ms(self) -> int:
        """Time of the engine's state."""
        return self.clock.now_ms()

    def when_durable(self, position: int, call: Completion) -> None:
        """Call `call` once the log is safe up to `position`, at once if it is; on any thread."""
        self.commits.when_durable(position, call)

    async def durable(self, position: int) -> None:
        """Wait until the log is safe up to `position`."""
        await Safe(position)

    async def run(self, work: Work) -> None:
        """Run work in slices to its end; raise its errors."""
        await drive(work, now=self.machine.steady_s, pause=Pause, committed=self._synced, done=Job)

    async def _synced(self, _seconds: float) -> None:
        # The work waits for the log: sync it now instead of waiting for another thread.
        await Job(self.commits.sync)
        self.show_committed()

    async def room(self) -> None:
        """Wait while the tails in memory are at their limit, until the splitter has caught up."""
        while self.engine.housekeeping.crowded():
            await self._catch_up()

    async def turn_for_large(self) -> None:
        """Wait for room only: the lock already lets threads take turns."""
        await self.room()

    async def room_for_changes(self, *, rows: bool = True) -> None:
        """Wait while the memory of changed states is at its limit; `rows` = that of tails, too."""
        while self.engine.housekeeping.crowded_by_changes(rows=rows) and not self.refusing_sends:
            await self._catch_up()

    async def _catch_up(self) -> None:
        if self.manual:
            self.chores.run_all()
        else:
            self.chores.kick()
            await Pause(0.001)

    @property
    def crowded(self) -> bool:
        """Whether sends have to wait for the splitter."""
        return self.engine.housekeeping.crowded()

    def free_bytes(self) -> int:
        """Free space of the folder, less what committed transactions still need."""
        return max(self.space.free_bytes() - self.engine.state.transactions.debt_bytes, 0)

    @property
    def refusing_sends(self) -> bool:
        """Whether sends are refused for lack of space."""
        return self.space.refusing_sends

    def appended(self) -> None:
        """Have appended frames committed."""
        self.commits.kick()

    def kick_dispatch(self) -> None:
        """Release due messages."""
        self.run_due()

    def kick_jobs(self) -> None:
        """Have a new job run."""
        self.chores.kick()

    def kick_publish(self) -> None:
        """Have the rows of a committed transaction published."""
        self.chores.kick()

    def hold_changed(self) -> None:
        """A call has held or released the broker."""
        self.commits.kick()
        self.run_due()
        self.tell_news()

    async def accept_clock(self) -> int:
        """Go back to wall time after it was set back; return the change in ms (0 or negative)."""
        step_ms = self.clock.accept()
        if step_ms:
            self.engine.set_back(step_ms, self.clock.now_ms())
            self.run_due()
        await Safe(self.engine.state.log.end_position)
        return step_ms

    def seconds_left(self, until_s: float, until_ms: int) -> float:
        """How long a call may still wait. A manual clock that reaches `until_ms` ends the wait."""
        if self.manual and self.clock.now_ms() >= until_ms:
            return 0.0
        return until_s - monotonic()

    async def pause(self, seconds: float = 0.0) -> None:
        """Let other calls run for `seconds`."""
        await Pause(seconds)

    def write_through(self) -> bool:
        """Write appended frames now, without a sync; False if another thread is writing."""
        return self.engine.state.log.write_pending(wait=False)

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Write everything appended to disk, take a last checkpoint, and close the engine. No lock.

        After a failure the engine is closed without these: its log has everything that was
        answered. In a forked child this does nothing.
        """
        # A call that waits for space on a full disk under the lock would keep the lock for ever.
        self.commits.end_waits(ClosedError("this broker is closed: open its folder again"))
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self.tell_news()
        self.chores.stop()
        self.commits.stop()
        with self.lock:
            try:
                if self._failure is None:
                    self.chores.finish()
            finally:
                self.engine.close()

    def give_up(self, error: BaseException) -> None:
        """Close without a checkpoint, after an error at the start. No lock."""
        with self.lock:
            self.fail(error)
        self.close()

    def begin_forked(self) -> None:
        """Mark the node closed in a forked child: only the parent may write the folder."""
        # Another thread of the parent may have held the lock. It does not exist here.
        self.lock = threading.Lock()
        self._news = threading.Condition(self.lock)
        self.forked = self.closed = True


def as_host(node: EmbeddedNode) -> ServingNode:
    """The node, typed as handlers of `broker/calls` expect it.

    They use only members that both kinds of node have; a test calls every handler with this one.
    """
    return cast("ServingNode", node)
