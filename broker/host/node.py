"""The node: one engine on one event loop, with its log thread, timers and background work.

The engine makes every decision, on the loop. The node connects it to its surroundings: messages
are released by `release_timer`, periodic duties are in `chores`, a turn is
committed by `log_commits`, long work runs between requests in `background`, senders wait for room
in `admission`, and `engine_exchange` replaces the engine. Callers reach all of them through the
node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.errors import NO_LONGER_LEADS, ConflictError, NotLeadingError
from delaylog.broker.host.admission import Admission, Space
from delaylog.broker.host.background import Background, TurnShares
from delaylog.broker.host.chores import Chores, HoldWatch
from delaylog.broker.host.clock import Clock
from delaylog.broker.host.engine_exchange import EngineExchange
from delaylog.broker.host.log_commits import DISK_RETRY_SECONDS, Completion, LogCommits
from delaylog.broker.host.machine import Machine
from delaylog.broker.host.node_role import NodeRole, Standalone
from delaylog.broker.host.release_timer import ReleaseTimer
from delaylog.broker.host.waiters import Waiters
from delaylog.broker.host.watch.lateness import LoopLag, RecentLateness, note_started, watch_causes
from delaylog.broker.host.watch.timings import Timings
from delaylog.storage.errors import DiskFullError
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.work import Work

DISK_STOP_SECONDS: Final = 5.0
"""How long a shutdown waits for a full disk."""

log = logging.getLogger("delaylog.node")


class Node:
    """Runs an engine. All methods belong to the loop's thread."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        on_fatal: Callable[[BaseException], None],
        *,
        fsync: str = "always",
        machine: Machine,
    ) -> None:
        self.machine = machine
        self.engine = engine
        self.clock = clock
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        self.timings = Timings()
        self.log_commits = LogCommits(
            engine.state.log, self._loop, self, fsync=fsync, machine=machine, timings=self.timings
        )
        self.background = Background(
            self.log_commits, self._loop, on_fatal, on_end=self._work_ended, machine=machine
        )
        self.space = Space(self, machine.steady_s)
        self.admission = Admission(lambda: self.engine, self.space, self.background, self._loop)
        self.chores = Chores(self)
        self.releases = ReleaseTimer(self, self._loop)
        self._stopping = False
        self.exchange = EngineExchange(self)
        self.waiters = Waiters()
        self.holds = HoldWatch(self)
        self.turns = TurnShares(machine.steady_s)
        self.role: NodeRole = Standalone(self.log_commits)
        """The role of this node; a member of a cluster sets another one before `start`."""
        self.files_pinned: Callable[[], bool] = lambda: False
        """Whether a backup copies the folder's files, so that none may be removed."""
        self.used_ms: dict[str, int] = {}
        """When principals last called this node, as far as the log does not have it."""
        self.on_end_leading: Callable[[], None] = lambda: None
        """Called when the engine has lost its leadership."""
        self.on_applied: Callable[[], None] = lambda: None
        """Called when a follower has applied more of the log."""
        self.loop_lag = LoopLag(machine)
        """How late timers of this node's loop fire."""
        self.recent_lateness = RecentLateness()

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Start the log thread and the timers."""
        self._prepare_engine()
        self.log_commits.start()
        self.loop_lag.start()
        watch_causes(self)
        self.kick_dispatch()

    def _prepare_engine(self) -> None:
        """Allocate the disk reserve of the present engine, before it accepts anything."""
        self.engine.upkeep.files_pinned = self.files_pinned
        self.engine.create_reserve()
        self.space.check()

    # ------------------------------------------------------------------ leading, in a cluster

    def begin_leading(self) -> None:
        """The engine is the leader from now on."""
        self.clock.hold_from(self.engine.started_ms)
        self.chores.begin_leading()
        note_started(self)
        self.kick_dispatch()

    def end_leading(self, why: NotLeadingError) -> None:
        """The engine has lost its leadership: every waiting call fails with `why`."""
        self.releases.cancel()
        self.log_commits.waiters.fail_all(why)
        self.on_end_leading()
        self.waiters.end_leading(why)

    def adopt(self, engine: Engine) -> None:
        """Use this engine from now on."""
        self.engine = engine
        self._prepare_engine()

    @property
    def suspended(self) -> bool:
        """Whether the engine, or the whole folder, is being replaced and must not be used."""
        return self.exchange.suspended

    def resume(self, engine: Engine, log: PhysicalLog) -> None:
        """Continue with another engine over another log."""
        self.exchange.resume(engine, log)
        # Calls that wait for a position of the old engine check again.
        self.on_applied()

    # ------------------------------------------------------------------ ending

    async def stop(self, *, finish: bool = True) -> None:
        """Shut down cleanly: no new work, everything appended is durable, one last checkpoint.

        Without `finish` nothing is written: the disk or the state cannot be trusted. An error of
        the last writes, or a cancel, ends these only.
        """
        self._stopping = True
        self.loop_lag.stop()
        self.log_commits.always_sync()
        self.background.refuse()
        self.releases.cancel()
        self.waiters.close()
        self.engine.state.hot.close()
        async with AsyncExitStack() as ends:
            # The last one first, and each of them: an error of the last writes leaves no thread
            # and no file behind.
            ends.callback(self._close_engine)
            ends.callback(self.background.shutdown)
            ends.callback(self.log_commits.stop)
            # Work that still waits for a commit would find closed files.
            ends.push_async_callback(self.background.halt)
            if finish:
                await self._finish_in_time()
                await self.background.halt()
                self.engine.write_tick(self.clock.now_ms())

    def _close_engine(self) -> None:
        # The present one: it may have been exchanged during the last writes.
        self.engine.close()

    async def _finish_in_time(self) -> None:
        """Finish, or give up because the disk stays full."""
        finishing = self._loop.create_task(self._finish())
        full_seconds = 0.0
        try:
            while not finishing.done() and full_seconds < DISK_STOP_SECONDS:
                await asyncio.wait([finishing], timeout=DISK_RETRY_SECONDS)
                full_seconds = full_seconds + DISK_RETRY_SECONDS if self.disk_full else 0.0
        finally:
            # The undurable frames may be lost: no call that waits for them was answered.
            finishing.cancel()
        try:
            await finishing
        except (DiskFullError, asyncio.CancelledError) as error:
            log.warning(
                "no space for a last checkpoint; the next start replays the log",
                extra={"why": str(error) or "the log cannot be written"},
            )

    async def _finish(self) -> None:
        if self.engine.state.retired or self.engine.state.failure is not None:
            # Frames that this engine applied may never be committed, and work that waits for them
            # would never end; or a frame was applied in part.
            return
        position = self.engine.state.position
        if not self.role.leading and self.log_commits.position() < position:
            # The leader has not reported yet how far the log is committed: this follower has the
            # state of its checkpoint, so there is nothing to save and no commit to wait for.
            return
        await self.durable(position)
        await self.background.finished()
        await self.run(self.chores.checkpoint())

    # ------------------------------------------------------------------ what calls wait for

    def time_s(self) -> float:
        """The loop's monotonic time, in seconds."""
        return self._loop.time()

    async def pause(self, seconds: float = 0.0) -> None:
        """Let other tasks run for this time."""
        await asyncio.sleep(seconds)

    @property
    def stopping(self) -> bool:
        """Whether the node shuts down."""
        return self._stopping

    def fail(self, error: BaseException) -> None:
        """The disk or the state cannot be trusted any more: end the process."""
        self._on_fatal(error)

    # ------------------------------------------------------------------ commit

    def log_committed(self) -> None:
        """The committed position has advanced: answer calls and dispatch messages below it."""
        if self.exchange.suspended:
            return
        position = self.log_commits.position()
        self.engine.commit(position, self.clock.now_ms())
        self.log_commits.reach(position)
        self.releases.run()

    def turn_ended(self) -> None:
        """A turn that appended has ended. Raises the error that left a frame applied in part: then
        the followers get nothing more of this node.
        """
        if (failure := self.engine.state.failure) is not None:
            raise failure
        self.role.appended()

    def log_synced(self) -> None:
        """A job of the log thread has ended."""
        self.role.synced()
        if self.exchange.suspended:
            return
        self.log_committed()
        if self.engine.state.log.pending_size:
            self.appended()
        if self.engine.housekeeping.flush_due():
            self.spawn("flush", self.chores.flush)

    def appended(self) -> None:
        """Frames were appended in this turn: commit them when the turn ends."""
        self.log_commits.appended()

    def write_through(self) -> bool:
        """Write the appended frames now, without their fsync; False if the write must wait."""
        return self.log_commits.write_through()

    def when_durable(self, position: int, call: Completion) -> None:
        """Call back once the log is durable up to `position`, at once if it is.

        With `fsync = "interval"` a written log counts as durable. The callback gets
        NotLeadingError if the node has lost its leadership: the frames may not survive.
        """
        if self.engine.state.retired:
            call(NotLeadingError(NO_LONGER_LEADS))
            return
        self.log_commits.when_durable(position, call)

    async def durable(self, position: int) -> None:
        """Wait until the log is durable up to `position`. Raises NotLeadingError."""
        if self.engine.state.retired:
            # Calls that were waiting have failed already; the frames may not survive.
            raise NotLeadingError(NO_LONGER_LEADS)
        await self.log_commits.durable(position)

    @property
    def disk_full(self) -> bool:
        """Whether commits wait for disk space because the reserve is used up."""
        return self.log_commits.disk_full

    # ------------------------------------------------------------------ clock

    def clock_jumped(self, jump_ms: int) -> None:
        """The broker's clock jumped ahead by `jump_ms`."""
        if not self.role.may_dispatch():
            return
        self.engine.jump_ahead(jump_ms, self.clock.now_ms())
        self.appended()
        self.kick_dispatch()

    async def accept_clock(self) -> int:
        """Follow wall time again after it was set back; returns the step in ms, 0 or negative.

        Raises ConflictError in a cluster: a step begins an epoch, which needs an election.
        """
        if self.engine.is_member and self.clock.ahead_ms:
            raise ConflictError(
                "a cluster cannot set its clock back: the clock continues when wall time has "
                "caught up"
            )
        step_ms = self.clock.accept()
        if step_ms:
            log.warning("a step of the clock was accepted", extra={"step_ms": step_ms})
            self.engine.set_back(step_ms, self.clock.now_ms())
            self.releases.cancel()
            self.appended()
            self.kick_dispatch()
        await self.durable(self.engine.state.log.end_position)
        return step_ms

    def hold_changed(self) -> None:
        """A call has held or released the broker."""
        self.appended()
        self.holds.look(self.clock.now_ms())

    # ------------------------------------------------------------------ dispatch

    def kick_dispatch(self) -> None:
        """Release due messages in the next turn of the loop."""
        self.releases.kick()

    def run_due(self, *, unpaced: bool = False) -> None:
        """Release due messages; `unpaced` ignores the pause since the last release."""
        self.releases.run(unpaced=unpaced)

    @property
    def may_release(self) -> bool:
        """False while the node stops, exchanges its engine, or must not dispatch."""
        return not (self._stopping or self.exchange.suspended) and self.role.may_dispatch()

    def released(self) -> None:
        """Messages may have become ready: load the messages due next, and wake consumers."""
        loader = self.engine.dispatcher.loader
        if loader.loading or loader.laying_out:
            for name, make in self.chores.loads():
                self.spawn(name, make)
        self.role.dispatched()
        self.wake_ready()

    def wake_ready(self) -> None:
        """Wake consumers of groups that have ready messages, and of groups that were removed."""
        state = self.engine.state
        if state.marks.dropped:
            for place in state.marks.dropped:
                self.waiters.drop(place)
            state.marks.dropped.clear()
        if state.marks.newly_ready:
            for number, group_number in state.marks.newly_ready:
                group = state.group(number, group_number)
                if group is None:
                    continue
                topic = state.by_number[number]
                place = (topic.namespace, topic.name, group.name)
                if self.waiters.awaited(place) and group.has_ready:
                    room = state.limits.leased_max - state.leases.leased(number, group_number)
                    self.waiters.wake_all(place, min(group.free_count, max(room, 1)))
            state.marks.newly_ready.clear()

    # ------------------------------------------------------------------ background work

    def spawn(self, name: str, make: Callable[[], Work]) -> bool:
        """Start background work unless work of this name runs; returns whether it was started."""
        return self.background.spawn(name, make)

    async def run(self, work: Work) -> None:
        """Run work to its end and raise its errors in the caller."""
        await self.background.run(work)

    def _work_ended(self) -> None:
        self.admission.look_again()
        self.kick_dispatch()

    def free_garbage(self) -> None:
        """Free removed values of the keyspace, in slices between requests."""
        self.spawn("free", self.chores.free)

    def kick_jobs(self) -> None:
        """A job was created: start it now."""
        self.spawn("jobs", self.chores.jobs)

    def kick_publish(self) -> None:
        """A transaction was committed: publish its rows."""
        self.spawn("publish", self.chores.publish)

    def state_ms(self) -> int:
        """Time of the engine's state: on a follower the replicated time of the leader."""
        follows = self.engine.state.following
        return self.engine.state.leader_time_ms if follows else self.clock.now_ms()

    # ------------------------------------------------------------------ admission

    def free_bytes(self) -> int:
        """Free bytes that no committed transaction needs; 0 while the reserve is not complete."""
        return max(self.space.free_bytes() - self.engine.state.transactions.debt_bytes, 0)

    @property
    def refusing_sends(self) -> bool:
        """Whether sends are refused for lack of disk space."""
        return self.space.refusing_sends

    async def room(self) -> None:
        """Wait while the tails of hours use too much memory, until a flush has freed some."""
        await self.admission.room()
        self.role.check()

    async def turn_for_large(self) -> None:
        """Wait for room for a large send, and for its turn among small ones."""
        await self.admission.room(large=True)
        await self.turns.wait_for_turn()
        # Other sends may have taken the room meanwhile.
        await self.admission.room(large=True)
        self.role.check()

    async def room_for_changes(self, *, rows: bool = True) -> None:
        """Wait while changes fill memory faster than they are written; `rows` = they add rows."""
        await self.admission.room_for_changes(rows=rows)
        self.role.check()
