"""The node of an embedded broker: an engine, its clock, one lock, and the waiters for news.

Everything is decided under the lock, on the calling thread. Handlers of `broker/calls` use it as
they use `broker.node.Node`, so both answer a call alike; what the handlers await is a `Step`, which
the driver of the coroutine carries out. With a running clock a thread does the upkeep; with a
manual clock the thread that moved it, or that called, does all of it.
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
from delaylog.broker.host.commits.position_waiters import Told
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.process.folder_lock import retention_held
from delaylog.broker.host.process.space import Space
from delaylog.broker.host.slices import drive
from delaylog.broker.host.standing import Alone
from delaylog.storage.work import Work

if TYPE_CHECKING:
    from delaylog.broker.calls.serving_node import ServingNode

_TURNS_MAX: Final = 64
"""Slices of releases that one call makes before it goes on; the next one makes more."""


class EmbeddedNode:
    """Runs an engine for threads. Methods need the lock (`held`) but where it is said."""

    suspended = False
    machine = REAL
    time_s = staticmethod(monotonic)

    def __init__(self, engine: Engine, clock: Clock, *, dial: str) -> None:
        self.engine = engine
        self.clock = clock
        self.standing = Alone(self)
        self.waiters = Waiting(self.tell_news)
        self.turn = DirectTurn(as_host(self))
        self.manual = isinstance(clock, ManualClock)
        """The clock stands still: nothing happens but in somebody's turn."""
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
        self.chores = ChoreRunner(self)
        engine.upkeep.files_pinned = self._retention_held
        register(self)

    def start(self) -> None:
        """Stand the reserve and do what is due; then look after things from now on. No lock."""
        with self.held():
            if self.manual:
                # A first message is no reason for one: a day of the clock has to pass.
                self.engine.upkeep.checkpoint_ms = self.clock.now_ms()
            self.engine.create_reserve()
            self.run_due()
        if isinstance(self.clock, WallClock):
            self.clock.on_jump = self._clock_jumped
        if not self.manual:
            self.chores.start()

    def _retention_held(self) -> bool:
        # Messages come before backups, as in a broker that serves.
        enough = self.free_bytes() >= 2 * self.engine.limits.disk_reserve_bytes
        return enough and retention_held(self.engine.folder)

    # ------------------------------------------------------------------ the lock

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock: upkeep lets callers go first. Raises ClosedError."""
        self.enter()
        try:
            yield
        finally:
            self.lock.release()

    def enter(self) -> None:
        """Take the lock; `lock.release()` gives it back. Raises ClosedError: it was not taken."""
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
        """Whether somebody waits for the lock. No lock."""
        return bool(self._callers)

    def fail(self, error: BaseException) -> None:
        """The disk or the state cannot be trusted any more: nothing is answered from here on."""
        self._failure = self._failure or error
        self.tell_news()

    # ------------------------------------------------------------------ the turn

    def run_due(self, *, unpaced: bool = False) -> None:  # noqa: ARG002 (the node's form)
        """Release what is due by now and tell who waits for it."""
        now_ms = self.clock.now_ms()
        if self.engine.state.exposures:
            # Whoever committed a send may not have come to show it; its sender knows it is safe.
            self.show_committed(now_ms)
        self.run_due_by(now_ms)

    def run_due_by(self, now_ms: int) -> None:
        """The same for who has just looked at the clock."""
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
        """Where a manual clock has to stop: what ends by then leaves a time behind. No lock."""
        with self.held():
            state = self.engine.state
            ends = (
                state.leases.next_expiry_ms(),
                state.claims.next_expiry_ms(),
                state.keyspace.next_expiry_ms(),
            )
            return min((end for end in ends if end is not None), default=None)

    def clock_moved(self) -> None:
        """A manual clock shows another time. No lock."""
        with self.held():
            self.run_due()
            # Whoever waits may have waited for the time itself.
            self.tell_news()

    def _clock_jumped(self, jump_ms: int) -> None:
        # Found by somebody who asks for the time, and so has the lock.
        self.engine.jump_ahead(jump_ms, self.clock.now_ms())
        self.commits.kick()

    def _committed(self) -> None:
        """The log got further: what lies below may be handed out. No lock."""
        with self.lock:
            if self.closed or self._failure is not None:
                return
            # What went wrong is known to the node, and none of this thread's affair.
            with suppress(Exception):
                self._hand_out()

    def written(self, position: int) -> bool:
        """Have the log safe up to there in this turn, where a write does that; False where not.

        What is committed by it may be handed out.
        """
        if not self.commits.write(position):
            return False
        if not self.manual and not self.engine.state.exposures:
            self.wake_ready()
        else:
            self._hand_out()
        return True

    def _hand_out(self) -> None:
        """Show what is committed and release what is due; an error of that ends the node."""
        try:
            now_ms = self.clock.now_ms()
            self.show_committed(now_ms)
            self.run_due_by(now_ms)
        except ClosedError:
            # It waited for a full disk, and is being closed.
            raise
        except BaseException as error:
            self.fail(error)
            raise

    def show_committed(self, now_ms: int | None = None) -> None:
        """Show the wheel what is safe by now, which is `now_ms` if it was just looked at."""
        self.engine.commit(
            self.commits.position(), self.clock.now_ms() if now_ms is None else now_ms
        )

    def wake_ready(self) -> None:
        """Tell who waits that something came to be ready, or that a group has gone."""
        state = self.engine.state
        if state.marks.newly_ready or state.marks.dropped:
            state.marks.newly_ready.clear()
            state.marks.dropped.clear()
            self.tell_news()

    def tell_news(self) -> None:
        """Let everybody who waits look again."""
        self._news.notify_all()
        for listener in self._listeners:
            listener()

    # ------------------------------------------------------------------ waiting for news

    def seconds_to_wait(self, seconds: float) -> float:
        """How long to wait for news: the wheel has to be turned by somebody."""
        if self.manual:
            return seconds
        wake_ms = self.engine.next_wake_ms()
        if wake_ms is None:
            return seconds
        return min(seconds, max(wake_ms - self.clock.now_ms(), 1) / 1000)

    def wait_for_news(self, seconds: float) -> None:
        """Let go of the lock until there is news, or the time is up."""
        self._news.wait(self.seconds_to_wait(seconds))
        if self.closed or self._failure is not None:
            raise why_closed(self._failure, forked=self.forked)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this at any news, under the lock, on whatever thread."""
        self._listeners.add(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Not any more."""
        self._listeners.discard(listener)

    # ------------------------------------------------------------------ what handlers ask for

    @property
    def stopping(self) -> bool:
        """Whether it is on its way out."""
        return self.closed

    def state_ms(self) -> int:
        """The time of what the engine holds."""
        return self.clock.now_ms()

    def when_durable(self, position: int, call: Told) -> None:
        """Call back once the log is safe up to there, at once if it is; on any thread."""
        self.commits.tell(position, call)

    async def durable(self, position: int) -> None:
        """Wait until the log is safe up to there."""
        await Safe(position)

    async def run(self, work: Work) -> None:
        """Run work in slices to its end; its errors are the caller's."""
        await drive(work, now=self.machine.steady_s, pause=Pause, committed=self._synced, done=Job)

    async def _synced(self, _seconds: float) -> None:
        # Work waits for the log, whoever would have committed that.
        await Job(self.commits.sync)
        self.show_committed()

    async def room(self) -> None:
        """Wait while the tails hold more than the splitter has to catch up with."""
        while self.engine.housekeeping.crowded():
            await self._catch_up()

    async def turn_for_large(self) -> None:
        """Wait for room alone: threads take turns by the lock."""
        await self.room()

    async def room_for_changes(self, *, rows: bool = True) -> None:
        """Wait while changes leave more in memory than gets written; `rows` = rows, too."""
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
        """Frames were appended: somebody commits them."""
        self.commits.kick()

    def kick_dispatch(self) -> None:
        """Release what is due."""
        self.run_due()

    def kick_jobs(self) -> None:
        """A job was begun: see to it."""
        self.chores.kick()

    def kick_publish(self) -> None:
        """A transaction was committed: bring its rows in."""
        self.chores.kick()

    async def accept_clock(self) -> int:
        """Go back to wall time after it was set back; returns by how much (0, or negative ms)."""
        step_ms = self.clock.accept()
        if step_ms:
            self.engine.set_back(step_ms, self.clock.now_ms())
            self.run_due()
        await Safe(self.engine.state.log.end_position)
        return step_ms

    def seconds_left(self, until_s: float, until_ms: int) -> float:
        """How long a call may wait yet; a manual clock that went so far ends a wait, too."""
        if self.manual and self.clock.now_ms() >= until_ms:
            return 0.0
        return until_s - monotonic()

    async def pause(self, seconds: float = 0.0) -> None:
        """Let others have their turn, for so long."""
        await Pause(seconds)

    def write_through(self) -> bool:
        """Write what is appended now, without waiting for its fsync; False if that must wait."""
        return self.engine.state.log.write_pending(wait=False)

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Everything appended is on the disk, and one last checkpoint. No lock.

        A broker that has failed is only let go of: its log has everything that was answered. A fork
        leaves everything to the process that opened it.
        """
        # Whoever waits for a full disk under the lock would keep it for ever.
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
        """Let go of everything without a checkpoint: the folder may be opened again. No lock."""
        with self.lock:
            self.fail(error)
        self.close()

    def begin_forked(self) -> None:
        """In a forked child: the folder is the parent's, and two that write it would ruin it."""
        # Another thread of the parent may have had the lock, and is not there to give it back.
        self.lock = threading.Lock()
        self._news = threading.Condition(self.lock)
        self.forked = self.closed = True


def as_host(node: EmbeddedNode) -> ServingNode:
    """The node as handlers of `broker/calls` see it.

    They use only what it shares with a server's; a test calls every handler with it.
    """
    return cast("ServingNode", node)
