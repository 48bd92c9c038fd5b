"""The node: one engine on one event loop, with its log thread, timers and background work.

Everything that decides happens on the loop, in the engine. The node gives it turns: a timer fires
when the wheel says so. What has to be done from time to time, how a turn is committed, how work
runs between requests and who has to wait for room is said in `node_ticks` and `chores`,
`log_commits`, `background` and `admission`; callers find all of it here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from time import perf_counter
from typing import Final

from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.errors import ConflictError, NotLeadingError
from delaylog.broker.engine.keyspace.keyspace_files import LoadedKeyspace, reload_keyspace
from delaylog.broker.host.admission import Admission
from delaylog.broker.host.background import Background
from delaylog.broker.host.chores import Chores
from delaylog.broker.host.clock import BrokerClock
from delaylog.broker.host.commits.group_commit import DISK_RETRY_SECONDS
from delaylog.broker.host.commits.log_commits import LogCommits
from delaylog.broker.host.commits.position_waiters import Told
from delaylog.broker.host.process.space import Space
from delaylog.broker.host.release_pace import ReleasePace
from delaylog.broker.host.standing import Alone, Standing
from delaylog.broker.host.turn_shares import TurnShares
from delaylog.broker.host.waiters import Waiters
from delaylog.broker.host.watch.loop_lag import LoopLag
from delaylog.storage.errors import CorruptionError, DiskFullError
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.work import Work

HELD_WAKE_MS: Final = 20
DISK_STOP_SECONDS: Final = 5.0
"""How long an end waits for a disk without any space."""
RELEASE_PACE_SECONDS: Final = 0.002
"""Shortest time between two releases while messages become due all the time."""

_LEADS_NO_MORE: Final = "this node leads no more; ask the leader"

log = logging.getLogger("delaylog.node")


class Node:
    """Runs an engine. All methods belong to the loop's thread."""

    def __init__(
        self,
        engine: Engine,
        clock: BrokerClock,
        on_fatal: Callable[[BaseException], None],
        *,
        fsync: str = "always",
    ) -> None:
        self.engine = engine
        self.clock = clock
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        self.log_commits = LogCommits(engine.state.log, self._loop, self, fsync=fsync)
        self.background = Background(
            self.log_commits, self._loop, on_fatal, on_end=self._work_ended
        )
        self.space = Space(lambda: self.engine, lambda: self.log_commits.disk_full)
        self.admission = Admission(lambda: self.engine, self.space, self.background, self._loop)
        self.chores = Chores(self)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._due_scheduled = False
        self.pace = ReleasePace(RELEASE_PACE_SECONDS)
        self._stopping = False
        self._suspended = False
        self.waiters = Waiters()
        self.turns = TurnShares()
        self.standing: Standing = Alone(self.log_commits)
        """The node's place in its cluster, if it has one; set before `start`."""
        self.held: Callable[[], bool] = lambda: False
        """Whether somebody copies the folder's files, so that none may be removed."""
        self.on_end_leading: Callable[[], None] = lambda: None
        """Called when the engine leads no more."""
        self.on_applied: Callable[[], None] = lambda: None
        """Called when a follower has applied more of the log."""
        self.loop_lag = LoopLag()
        """How late timers of this node's loop fire."""

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Begin serving: the reserve stands, timers run, background work starts."""
        self._stand()
        self.log_commits.start()
        self.loop_lag.start()
        self.kick_dispatch()

    def _stand(self) -> None:
        """An engine begins here: nothing is taken on for which there is no room."""
        self.engine.upkeep.held = self.held
        self.engine.stand_reserve()
        self.space.look()

    # ------------------------------------------------------------------ leading, in a cluster

    def begin_leading(self) -> None:
        """The engine leads from now on."""
        self.clock.hold_from(self.engine.started_ms)
        self.chores.begin_leading()
        self.kick_dispatch()

    def end_leading(self, why: NotLeadingError) -> None:
        """It does not any more: whoever waits for something of it is told."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.log_commits.waiters.fail_all(why)
        self.on_end_leading()
        for place in self.waiters.groups():
            self.waiters.wake_everyone(place)

    async def replace_engine(self, make: Callable[[LoadedKeyspace | None], Engine]) -> None:
        """Drop an engine that led for one over the same log; the background is halted meanwhile.

        A large keyspace takes seconds to be loaded, so a thread does that; the log goes on
        meanwhile. The engine stays open for calls that had begun, but nothing is made of it.
        """
        self._suspended = True
        try:
            loading = asyncio.ensure_future(asyncio.to_thread(self.engine.load_keyspace))
            try:
                loaded = await asyncio.shield(loading)
            finally:
                # Whoever gives up may exchange the folder next: nobody reads it any more then.
                await asyncio.gather(loading, return_exceptions=True)
            old = self.engine
            old.close()
            self.engine = make(loaded)
            self._stand()
            # In slices, as all that is removed: freed at once it would hold the loop as well.
            self.engine.state.keyspace.inherit(old.state.keyspace)
        finally:
            self._suspended = False

    async def restore_keyspace(self) -> None:
        """Have a condemned keyspace replaced by what the log says; the rest of the engine goes on.

        Raises NotLeadingError: whoever leads next has a keyspace of its own, and so has this node.
        """
        engine, state = self.engine, self.engine.state
        old, upto = state.keyspace, state.position
        assert old.condemned, "nothing is logged meanwhile"
        await self.durable(upto)
        while True:
            base = replace(state.keyspace_base)
            try:
                keyspace = await asyncio.to_thread(
                    reload_keyspace, engine.fs, engine.folder, base, upto, state.random
                )
                break
            except CorruptionError:
                if state.keyspace_base.position == base.position:
                    raise
                # A snapshot was made meanwhile, and the one before it is gone.
        if engine is not self.engine or state.retired or state.following:
            raise NotLeadingError(_LEADS_NO_MORE)
        keyspace.now_ms = old.now_ms
        keyspace.begin_expiring()
        state.keyspace = keyspace
        keyspace.inherit(old)
        self.kick_dispatch()

    # ------------------------------------------------------------------ another folder

    @property
    def suspended(self) -> bool:
        """Whether the engine, or the folder too, is exchanged: there is nothing to look at."""
        return self._suspended

    async def suspend(self) -> None:
        """Rest: when this returns nobody touches the engine or its log. It does not lead."""
        self._suspended = True
        await self.background.halt()
        await asyncio.to_thread(self.log_commits.stop)

    def resume(self, engine: Engine, log: PhysicalLog) -> None:
        """Go on with another engine over another log."""
        old, self.engine = self.engine, engine
        self._stand()
        # In slices, as all that is removed.
        engine.state.keyspace.inherit(old.state.keyspace)
        self.log_commits.exchange(log)
        self._suspended = False
        self.background.go_on()
        # Whoever waited for something of the old one is told.
        self.on_applied()

    # ------------------------------------------------------------------ ending

    async def stop(self) -> None:
        """Clean end: no new work, everything appended is durable, one last checkpoint."""
        self._stopping = True
        self.loop_lag.stop()
        self.log_commits.always_sync()
        self.background.refuse()
        if self._timer is not None:
            self._timer.cancel()
        self.waiters.close()
        self.engine.state.hot.close()
        finishing = self._loop.create_task(self._finish())
        full_seconds = 0.0
        while not finishing.done():
            await asyncio.wait([finishing], timeout=DISK_RETRY_SECONDS)
            full_seconds = full_seconds + DISK_RETRY_SECONDS if self.disk_full else 0.0
            if full_seconds >= DISK_STOP_SECONDS:
                # What is not durable was not answered either.
                finishing.cancel()
                break
        try:
            await finishing
        except (DiskFullError, asyncio.CancelledError) as error:
            log.warning(
                "no space for a last checkpoint; the next start replays the log",
                extra={"why": str(error) or "the log cannot be written"},
            )
        # Work that waits for what does not come any more would find closed files.
        await self.background.halt()
        self.engine.write_tick(self.clock.now_ms())
        self.log_commits.stop()
        self.background.shutdown()
        self.engine.close()

    async def _finish(self) -> None:
        if self.engine.state.retired:
            # What it has applied may never be committed, and work may wait for that.
            return
        position = self.engine.state.position
        if not self.standing.leading and self.log_commits.position() < position:
            # Nobody has told this follower yet how far the log is committed, so it holds what the
            # checkpoint held that it began with. There is nothing to save, nor anybody to wait for.
            return
        await self.durable(position)
        await self.background.finished()
        await self.run(self.chores.checkpoint())

    # ------------------------------------------------------------------ what calls wait for

    def time_s(self) -> float:
        """The time of the loop, in seconds."""
        return self._loop.time()

    def seconds_left(self, until_s: float, until_ms: int) -> float:  # noqa: ARG002
        """How long a call may wait yet, which began to wait by both clocks."""
        return until_s - self._loop.time()

    async def pause(self, seconds: float = 0.0) -> None:
        """Let others have their turn, for so long."""
        await asyncio.sleep(seconds)

    @property
    def stopping(self) -> bool:
        """Whether the node is on its way out."""
        return self._stopping

    def fail(self, error: BaseException) -> None:
        """The disk or the state cannot be trusted any more: the host ends the process."""
        self._on_fatal(error)

    # ------------------------------------------------------------------ commit

    def log_committed(self) -> None:
        """The log got further: what lies below may be answered and dispatched."""
        if self._suspended:
            return
        position = self.log_commits.position()
        self.engine.commit(position, self.clock.now_ms())
        self.log_commits.waiters.reach(position)
        self.run_due()

    def turn_ended(self) -> None:
        """A turn that appended has ended."""
        self.standing.appended()

    def log_synced(self) -> None:
        """A job of the log thread has ended."""
        self.standing.synced()
        if self._suspended:
            return
        self.log_committed()
        if self.engine.state.log.pending_size:
            self.appended()
        if self.engine.flush_due():
            self.spawn("flush", self.chores.flush)

    def appended(self) -> None:
        """Frames were appended in this turn: commit them when the turn ends."""
        self.log_commits.appended()

    def write_through(self) -> bool:
        """Write what is appended now, without waiting for its fsync; False if that must wait."""
        return self.log_commits.write_through()

    def when_durable(self, position: int, call: Told) -> None:
        """Call back once the log is durable up to `position` (at once if it is, or by dial).

        With NotLeadingError when a leadership has ended: the log goes on without what it saw.
        """
        if self.engine.state.retired:
            call(NotLeadingError(_LEADS_NO_MORE))
            return
        self.log_commits.when_durable(position, call)

    async def durable(self, position: int) -> None:
        """Wait until the log is durable up to `position`. Raises NotLeadingError."""
        if self.engine.state.retired:
            # Those who waited were told already, and the log goes on without what it saw.
            raise NotLeadingError(_LEADS_NO_MORE)
        await self.log_commits.durable(position)

    @property
    def disk_full(self) -> bool:
        """Whether everything waits for space, the reserve being used up."""
        return self.log_commits.disk_full

    @property
    def commits(self) -> int:
        """Group commits so far."""
        return self.log_commits.commits

    # ------------------------------------------------------------------ clock

    def clock_jumped(self, jump_ms: int) -> None:
        """The broker's time went ahead by so much more than passed."""
        if not self.standing.may_turn():
            return
        self.engine.jump_ahead(jump_ms, self.clock.now_ms())
        self.appended()
        self.kick_dispatch()

    async def accept_clock(self) -> int:
        """Go back to wall time after it was set back; returns by how much (0, or negative ms).

        Raises ConflictError in a cluster, where a step begins an epoch that none has promised.
        """
        if self.engine.is_member and self.clock.held_ms:
            raise ConflictError(
                "a cluster does not take the clock back: it goes on when wall time has caught up"
            )
        step_ms = self.clock.accept()
        if step_ms:
            log.warning("a step of the clock was accepted", extra={"step_ms": step_ms})
            self.engine.set_back(step_ms, self.clock.now_ms())
            if self._timer is not None:
                # It stands for a moment of the time that was left.
                self._timer.cancel()
                self._timer = None
            self.appended()
            self.kick_dispatch()
        await self.durable(self.engine.state.log.end_position)
        return step_ms

    # ------------------------------------------------------------------ dispatch

    def kick_dispatch(self) -> None:
        """Turn the dispatcher soon."""
        if not self._due_scheduled:
            self._due_scheduled = True
            self._loop.call_soon(self._run_due_now)

    def _run_due_now(self) -> None:
        self._due_scheduled = False
        self.run_due()

    def run_due(self, *, unpaced: bool = False) -> None:
        """Release what is due, wake who waits for it, and set the timer for the next.

        `unpaced` = whatever was released a moment ago: for a caller who does not wait.
        """
        if self._stopping or self._suspended or not self.standing.may_turn():
            return
        now_ms = self.clock.now_ms()
        try:
            if unpaced:
                # The log's thread may have got further than the loop has heard.
                self.engine.commit(self.log_commits.position(), now_ms)
            wake = self.engine.next_wake_ms()
            paced = not unpaced and self.pace.left_s > 0
            if wake is not None and wake <= now_ms and not paced:
                began_s = perf_counter()
                if self.engine.run_due(now_ms):
                    self.kick_dispatch()
                else:
                    self.pace.released(began_s)
                state = self.engine.state
                if state.log.pending_size:
                    self.appended()
            for name, make in self.chores.loads():
                self.spawn(name, make)
        except Exception as error:
            self._on_fatal(error)
            return
        self.standing.turned()
        self.wake_ready()
        self._arm(now_ms)

    def wake_ready(self) -> None:
        """Wake consumers of topics that got something ready, and of groups that have gone."""
        state = self.engine.state
        if state.gone:
            for place in state.gone:
                self.waiters.wake_everyone(place)
            state.gone.clear()
        if state.woken:
            for number, group_number in state.woken:
                group = state.group(number, group_number)
                if group is not None and group.has_ready:
                    topic = state.by_number[number]
                    place = (topic.namespace, topic.name, group.name)
                    room = state.limits.leased_max - state.leases.leased(number, group_number)
                    self.waiters.wake_all(place, min(group.free_count, max(room, 1)))
            state.woken.clear()

    def _arm(self, now_ms: int) -> None:
        wake = self.engine.next_wake_ms()
        if wake is None or not self.standing.leading:
            return
        if (pause_s := self.pace.left_s) > 0:
            wake = max(wake, now_ms + ceil(pause_s * 1000))
        if self._timer is not None:
            if self._timer_ms <= wake and self._timer_ms > now_ms:
                return
            self._timer.cancel()
        self._timer_ms = wake
        # A clock that is held may stand for a day just before the next message is due.
        least_ms = HELD_WAKE_MS if self.clock.held_ms else 1
        delay = min(max(wake - now_ms, least_ms), 60_000) / 1000
        self._timer = self._loop.call_later(delay, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.run_due()

    # ------------------------------------------------------------------ background work

    def spawn(self, name: str, make: Callable[[], Work]) -> bool:
        """Run background work unless work of this name runs already; whether it was begun."""
        return self.background.spawn(name, make)

    async def run(self, work: Work) -> None:
        """Run work to its end for somebody who waits for it; its errors are the caller's."""
        await self.background.run(work)

    def _work_ended(self) -> None:
        self.admission.look_again()
        self.kick_dispatch()

    def free_garbage(self) -> None:
        """Take apart what was removed from the keyspace, between other things."""
        self.spawn("free", self.chores.free)

    def kick_jobs(self) -> None:
        """A job was begun: see to it now."""
        self.spawn("jobs", self.chores.jobs)

    def kick_publish(self) -> None:
        """A transaction was committed: bring its rows in."""
        self.spawn("publish", self.chores.publish)

    def state_ms(self) -> int:
        """The time of what the engine holds: that of the leader it follows, or its own."""
        state = self.engine.state
        return state.told_ms if state.following else self.clock.now_ms()

    # ------------------------------------------------------------------ admission

    def free_bytes(self) -> int:
        """Free space of the data folder, less what committed transactions still need; 0 while the
        disk is full or the reserve is not whole.
        """
        return max(self.space.free_bytes() - self.engine.state.transactions.debt_bytes, 0)

    @property
    def refusing_sends(self) -> bool:
        """Whether sends are refused for lack of space."""
        return self.space.refusing_sends

    @property
    def crowded(self) -> bool:
        """Whether sends have to wait for the splitter."""
        return self.admission.crowded

    async def room(self) -> None:
        """Wait while the tails hold more than the splitter has to catch up with."""
        await self.admission.room()
        self.standing.check()

    async def turn_for_large(self) -> None:
        """Wait for room for a large send, and for its turn while single ones come beside it."""
        await self.admission.room(large=True)
        await self.turns.large()
        # Others had their turn in between.
        await self.admission.room(large=True)
        self.standing.check()

    async def room_for_changes(self, *, rows: bool = True) -> None:
        """Wait while changes leave more in memory than gets written; `rows` = rows, too."""
        await self.admission.room_for_changes(rows=rows)
        self.standing.check()
