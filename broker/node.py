"""The node: one engine on one event loop, with its log thread, timers and background work.

Everything that decides happens on the loop, in the engine. This module gives it turns: frames of
a turn are committed together, answers go out when the log is durable up to what they saw, a timer
fires when the wheel says so, and background work runs in slices between requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import ceil
from time import perf_counter
from typing import Final

from delaylog.broker.clock import BrokerClock
from delaylog.broker.engine import Engine
from delaylog.broker.waiters import Waiters
from delaylog.storage.errors import DiskFullError
from delaylog.storage.hour_store import Work
from delaylog.storage.log_thread import LogThread

TICK_MS: Final = 50
SLICE_SECONDS: Final = 0.002
HELD_WAKE_MS: Final = 20
RETIRE_EVERY_MS: Final = 5_000
DISK_LOOK_SECONDS: Final = 0.5
DISK_RETRY_SECONDS: Final = 0.2
DISK_STOP_SECONDS: Final = 5.0
"""How long an end waits for a disk without any space."""
RELEASE_PACE_SECONDS: Final = 0.002
"""Least time between two releases while messages become due all the time. A release costs a turn
of the wheel, a receive, an ack and a new poll, whether it brings one message or a hundred; the
first one after a pause is never held back."""
WRITE_INLINE_BYTES: Final = 128 << 10
"""Frames up to this size are written by the loop itself; larger ones by the log thread."""

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
        self._fsync = fsync
        self._loop = asyncio.get_running_loop()
        self._io = ThreadPoolExecutor(1, thread_name_prefix="delaylog-io")
        self._log_thread = LogThread(engine.state.log, self._from_log_thread)
        self._syncing = False
        self._commit_scheduled = False
        self._durable_waiters: deque[tuple[int, Callable[[], None]]] = deque()
        self._room_waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._due_scheduled = False
        self._next_release = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[str] = set()
        self._waiting_for_space: set[str] = set()
        self._stopping = False
        self.waiters = Waiters()
        self.disk_full = False
        self._free_bytes = 1 << 62
        self._free_looked = 0.0
        self._reserve_looked = 0.0
        self._reserve_told = False
        self._retire_ms = 0
        self.commits = 0

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Begin serving: the reserve stands, timers run, background work starts."""
        self.engine.stand_reserve()
        self._log_thread.start()
        self._loop.call_later(TICK_MS / 1000, self._tick)
        self.kick_dispatch()

    async def stop(self) -> None:
        """Clean end: no new work, everything appended is durable, one last checkpoint."""
        self._stopping = True
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
                for task in self._tasks:
                    task.cancel()
                break
        try:
            await finishing
        except (DiskFullError, asyncio.CancelledError) as error:
            log.warning(
                "no space for a last checkpoint; the next start replays the log",
                extra={"why": str(error) or "the log cannot be written"},
            )
        self.engine.write_tick(self.clock.now_ms())
        self._log_thread.stop()
        self._io.shutdown()
        self.engine.close()

    async def _finish(self) -> None:
        await self.durable(self.engine.state.log.end_position)
        for task in list(self._tasks):
            await asyncio.gather(task, return_exceptions=True)
        await self._drive(self.engine.upkeep.checkpoint(self.clock.now_ms))

    def fail(self, error: BaseException) -> None:
        """The disk or the state cannot be trusted any more: the host ends the process."""
        self._on_fatal(error)

    # ------------------------------------------------------------------ commit

    def appended(self) -> None:
        """Frames were appended in this turn: commit them when the turn ends."""
        if not self._commit_scheduled:
            self._commit_scheduled = True
            self._loop.call_soon(self._commit_turn)

    def _commit_turn(self) -> None:
        self._commit_scheduled = False
        if self._fsync == "interval" and not self._stopping:
            # The dial's promise: answers follow the write, the fsync follows within 50 ms. On the
            # way out no tick would call for it, and the last checkpoint waits for it.
            if self.write_through():
                self._advance(self.engine.state.log.written_position)
            else:
                self._kick_log()
        elif not self.disk_full:
            self._kick_log()

    def _kick_log(self) -> None:
        if not self._syncing:
            self._syncing = True
            self._log_thread.kick()

    def _advance(self, position: int) -> None:
        """What lies below `position` may be answered and dispatched."""
        self.engine.commit(position, self.clock.now_ms())
        waiters = self._durable_waiters
        while waiters and waiters[0][0] <= position:
            waiters.popleft()[1]()
        self.run_due()

    def write_through(self) -> bool:
        """Write what is appended now, without waiting for its fsync; False if that must wait."""
        state = self.engine.state
        if self.disk_full or state.log.pending_size > WRITE_INLINE_BYTES:
            return False
        try:
            return state.log.write_pending(wait=False)
        except DiskFullError as error:
            self._log_failed(error)
            return False
        except Exception as error:
            self._on_fatal(error)
            return False

    def _from_log_thread(self, error: BaseException | None) -> None:
        # An end that fails half-way closes the loop while the last job may still run: a trace of
        # that would stand behind the line that says what failed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._synced, error)

    def _synced(self, error: BaseException | None) -> None:
        self._syncing = False
        if error is not None:
            self._log_failed(error)
            return
        self.disk_full = False
        self.commits += 1
        state = self.engine.state
        self._advance(state.log.durable_position)
        if state.log.pending_size:
            self.appended()
        if self.engine.flush_due():
            self.spawn("flush", self.engine.flush_work)

    def _log_failed(self, error: BaseException) -> None:
        if isinstance(error, DiskFullError):
            if not self.disk_full:
                log.error(
                    "the disk is full and the reserve is used up; everything waits for space",
                    extra={"why": str(error)},
                )
            self.disk_full = True
            self._loop.call_later(DISK_RETRY_SECONDS, self._retry_log)
            return
        self._on_fatal(error)

    def _retry_log(self) -> None:
        if self.disk_full:
            self._kick_log()

    def when_durable(self, position: int, call: Callable[[], None]) -> None:
        """Call back once the log is durable up to `position` (at once if it is, or by dial)."""
        if self.engine.state.log.durable_position >= position:
            call()
            return
        self.appended()
        waiters = self._durable_waiters
        if waiters and waiters[-1][0] > position:
            # A reader that saw less than the newest writer: keep the order of positions.
            at = next(i for i, item in enumerate(waiters) if item[0] > position)
            waiters.insert(at, (position, call))
        else:
            waiters.append((position, call))

    async def durable(self, position: int) -> None:
        """Wait until the log is durable up to `position`."""
        if self.engine.state.log.durable_position >= position:
            return
        future: asyncio.Future[None] = self._loop.create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        self.when_durable(position, done)
        await future

    # ------------------------------------------------------------------ clock

    def clock_jumped(self, jump_ms: int) -> None:
        """The broker's time went ahead by so much more than passed."""
        self.engine.jump_ahead(jump_ms, self.clock.now_ms())
        self.appended()
        self.kick_dispatch()

    async def accept_clock(self) -> int:
        """Go back to wall time after it was set back; returns by how much (0, or negative ms)."""
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
        if self._stopping:
            return
        now_ms = self.clock.now_ms()
        try:
            wake = self.engine.next_wake_ms()
            paced = not unpaced and perf_counter() < self._next_release
            if wake is not None and wake <= now_ms and not paced:
                if self.engine.run_due(now_ms):
                    self.kick_dispatch()
                else:
                    self._next_release = perf_counter() + RELEASE_PACE_SECONDS
                state = self.engine.state
                if state.log.pending_size:
                    self.appended()
            if self.engine.dispatcher.loader.loading:
                self.spawn("load", self.engine.dispatcher.loader.load_work)
            if self.engine.dispatcher.loader.laying_out:
                self.spawn("lay out", self.engine.dispatcher.loader.lay_out_work)
        except Exception as error:
            self._on_fatal(error)
            return
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
                    self.waiters.wake_all((topic.namespace, topic.name, group.name))
            state.woken.clear()

    def _arm(self, now_ms: int) -> None:
        wake = self.engine.next_wake_ms()
        if wake is None:
            return
        if (held := self._next_release - perf_counter()) > 0:
            wake = max(wake, now_ms + ceil(held * 1000))
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

    def spawn(self, name: str, make: Callable[[], Work]) -> None:
        """Run background work unless work of this name runs already."""
        if name in self._running or self._stopping:
            return
        self._running.add(name)
        task = self._loop.create_task(self._guard(name, make()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, name: str, work: Work) -> None:
        try:
            await self._drive(work)
            self._waiting_for_space.discard(name)
        except DiskFullError as error:
            if name not in self._waiting_for_space:
                self._waiting_for_space.add(name)
                log.warning(
                    "background work waits for disk space", extra={"work": name, "why": str(error)}
                )
            self.disk_full = True
            await asyncio.sleep(DISK_RETRY_SECONDS)
            self._retry_log()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._on_fatal(error)
        finally:
            self._running.discard(name)
            self._wake_room()
        self.kick_dispatch()

    async def run(self, work: Work) -> None:
        """Run work to its end for somebody who waits for it; its errors are the caller's."""
        await self._drive(work)

    async def _drive(self, work: Work) -> None:
        """Run a generator of slices and I/O jobs to its end."""
        began = perf_counter()
        error: BaseException | None = None
        while True:
            try:
                step = work.throw(error) if error is not None else next(work)
            except StopIteration:
                return
            error = None
            if step is None:
                if perf_counter() - began > SLICE_SECONDS:
                    await asyncio.sleep(0)
                    began = perf_counter()
            elif isinstance(step, float):
                # Work waits for the log: see that somebody commits it, even on the way out.
                self.appended()
                await asyncio.sleep(step)
                began = perf_counter()
            else:
                try:
                    await self._loop.run_in_executor(self._io, step)
                except Exception as failure:
                    error = failure
                began = perf_counter()

    def kick_jobs(self) -> None:
        """A job was begun: see to it now."""
        self.spawn("jobs", self._jobs_work)

    def _jobs_work(self) -> Work:
        return self.engine.jobs.work(self.clock.now_ms, lambda: self._stopping)

    def _tick(self) -> None:
        """Every 50 ms: tick slot, checkpoints, state pages, a look at the disk."""
        if self._stopping:
            return
        try:
            engine = self.engine
            now_ms = self.clock.now_ms()
            newest = engine.ticks.newest
            state = engine.state
            if (
                newest is None
                or newest.tick != state.tick
                or newest.durable_end != (state.log.durable_position)
            ):
                engine.write_tick(now_ms)
            unsynced = state.log.end_position > state.log.durable_position
            if (unsynced or state.log.sealed) and not self.disk_full:
                self._kick_log()
            wake = engine.next_wake_ms()
            if wake is not None and wake <= now_ms:
                # The timer counts time that passes; a clock that was set ahead shows here.
                self.kick_dispatch()
            self._look_after_space()
            if now_ms >= self._retire_ms:
                self._retire_ms = now_ms + RETIRE_EVERY_MS
                self._note_waiting(now_ms)
                engine.retire_unused(now_ms)
                if engine.state.log.pending_size:
                    self.appended()
            if engine.upkeep.checkpoint_due(now_ms):
                self.spawn("checkpoint", lambda: engine.upkeep.checkpoint(self.clock.now_ms))
            if engine.states_due():
                self.spawn("states", engine.states_work)
            if engine.flush_due():
                self.spawn("flush", engine.flush_work)
            if state.garbage:
                self.spawn("discard", engine.discard_work)
            if engine.jobs.due(now_ms):
                self.spawn("jobs", self._jobs_work)
        except Exception as error:
            self._on_fatal(error)
            return
        self._loop.call_later(TICK_MS / 1000, self._tick)

    def _note_waiting(self, now_ms: int) -> None:
        """Whoever waits for a group uses it, however long ago it asked."""
        topics = self.engine.state.topics
        for namespace, name, group_name in self.waiters.groups():
            topic = topics.get((namespace, name))
            group = None if topic is None else topic.group(group_name)
            if topic is not None and group is not None:
                topic.used_ms = group.used_ms = now_ms

    # ------------------------------------------------------------------ admission

    def _look_after_space(self) -> None:
        """Make the reserve again when there is room; while there is none, free old log early."""
        engine, reserve = self.engine, self.engine.reserve
        engine.upkeep.short_of_space = self.refusing_sends
        if reserve.whole == self._reserve_told:
            self._reserve_told = not reserve.whole
            sizes = {"bytes_left": reserve.size_bytes, "bytes_whole": reserve.target_bytes}
            if reserve.whole:
                log.warning("the disk has space again and the reserve stands", extra=sizes)
            else:
                log.error(
                    "the disk is full; sends are refused, the rest goes on from the reserve",
                    extra=sizes,
                )
        now = perf_counter()
        if not reserve.whole and now - self._reserve_looked > DISK_LOOK_SECONDS:
            self._reserve_looked = now
            self.spawn("reserve", self._refill_reserve)

    def _refill_reserve(self) -> Work:
        yield self.engine.refill_reserve
        self._free_looked = 0.0

    def free_bytes(self) -> int:
        """Free space of the data folder, looked at twice a second.

        0 while the disk is full or the reserve does not stand.
        """
        if self.disk_full or not self.engine.reserve.whole:
            return 0
        now = perf_counter()
        if now - self._free_looked > DISK_LOOK_SECONDS:
            self._free_looked = now
            self._free_bytes = self.engine.fs.free_bytes(self.engine.folder)
            if self._free_bytes < 2 * self.engine.limits.disk_reserve_bytes:
                # Copies that only save time make room for messages.
                self.engine.state.hot.clear()
        return self._free_bytes

    @property
    def refusing_sends(self) -> bool:
        """Whether sends are refused for lack of space."""
        return self.free_bytes() < self.engine.limits.disk_reserve_bytes

    @property
    def crowded(self) -> bool:
        """Whether sends have to wait for the splitter."""
        return self.engine.crowded()

    @property
    def stopping(self) -> bool:
        """Whether the node is on its way out."""
        return self._stopping

    async def room(self) -> None:
        """Wait while the tails hold more than the splitter has to catch up with."""
        while self.crowded:
            self.spawn("flush", self.engine.flush_work)
            future = self._loop.create_future()
            self._room_waiters.append(future)
            await future

    async def room_for_changes(self) -> None:
        """Wait while cancels and reschedules leave more in memory than gets written.

        Not on a full disk, where what is written waits for them: a cancel makes room.
        """
        while self.engine.crowded_by_changes() and not self.refusing_sends and not self._stopping:
            self.spawn("flush", self.engine.flush_work)
            self.spawn("states", self.engine.states_work)
            future = self._loop.create_future()
            self._room_waiters.append(future)
            await future

    def _wake_room(self) -> None:
        waiting, self._room_waiters = self._room_waiters, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
