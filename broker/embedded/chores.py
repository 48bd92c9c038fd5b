"""Runs the chores of an embedded broker (`broker/host/chores.py` says which are due).

A server runs them on its loop, between requests. Here a thread runs them: slices under the lock,
I/O jobs outside of it. Under a manual clock there is no such thread: the thread that moves the
clock, or makes a call, runs all due chores to their end. Of each name one work runs at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic, sleep
from typing import Final, Protocol

from delaylog.broker.embedded.clocks import Clock
from delaylog.broker.embedded.waits.commits import ThreadCommits
from delaylog.broker.host.chores import CHECK_MS, Chore, Chores, Host
from delaylog.broker.host.commits.group_commit import DISK_RETRY_SECONDS
from delaylog.broker.host.slices import run_slice
from delaylog.broker.host.watch.recent_lateness import RecentLateness
from delaylog.storage.errors import DiskFullError
from delaylog.storage.work import Work

MANUAL_LOOK_MS: Final = 3_600_000
"""Under a manual clock: the interval, on that clock, of upkeep that nothing else triggers."""
MANUAL_LOOK_SECONDS: Final = 1.0
"""The same in real time; the next call does the upkeep."""
_MOVES_MAX: Final = 100_000
"""Bound of the rounds of `run_all`, so that work that keeps creating work cannot loop for ever."""

log = logging.getLogger("delaylog.embedded")


class Node(Host, Protocol):
    """The embedded node, as far as its chores need it."""

    clock: Clock
    lock: threading.Lock
    commits: ThreadCommits
    recent_lateness: RecentLateness

    @property
    def wanted(self) -> bool:
        """Whether a caller waits for the lock. No lock."""

    def run_due(self) -> None:
        """Release what is due by now."""

    def show_committed(self) -> None:
        """Publish what is committed."""

    def fail(self, error: BaseException) -> None:
        """Refuse all further calls."""


class ChoreRunner:
    """Runs background work of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._chores = Chores(node)
        self._works: dict[str, Work] = {}
        self._not_before: dict[str, float] = {}
        self._look_ms = 0
        self._looked = 0.0
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="delaylog-upkeep", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def kick(self) -> None:
        """Have the thread look for due chores now."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread after its present step, and close all work. Not under the lock."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        for work in self._works.values():
            work.close()
        self._works.clear()

    # ------------------------------------------------------------------ what there is to do

    def _due(self, now_ms: int) -> Iterator[Chore]:
        """The due chores, the most urgent first."""
        yield from self._chores.loads()
        yield from self._chores.leading(now_ms)
        yield from self._chores.storing(now_ms)

    def _look(self, now_ms: int) -> None:
        """Upkeep that is short enough to run inline."""
        node, engine = self._node, self._node.engine
        engine.write_changed_tick(now_ms)
        node.space.check()
        while engine.schedules.warnings:
            log.warning(engine.schedules.warnings.pop())
        # Only the monitor of a served broker reads these. Taking them keeps the list short.
        engine.state.take_activities()
        if self._chores.retire_due(now_ms):
            engine.retire_unused(now_ms)

    # ------------------------------------------------------------------ a thread

    def _run(self) -> None:
        node = self._node
        while not self._stopping:
            try:
                busy = self._round()
            except Exception as error:
                log.critical("an error stops the embedded broker", exc_info=error)
                with node.lock:
                    node.fail(error)
                return
            if busy:
                # This running thread would take the lock again first: let a waiting one have it.
                sleep(0.0002 if node.wanted else 0)
            else:
                self._wake.wait(CHECK_MS / 1000)
                self._wake.clear()

    def _round(self) -> bool:
        """Run a slice of each work; returns whether there is more to do at once."""
        node = self._node
        with node.lock:
            now_ms = node.clock.now_ms()
            node.recent_lateness.look(now_ms, node.engine.state.series)
            self._look(now_ms)
            node.run_due()
            now = monotonic()
            for name, make in self._due(now_ms):
                if name not in self._works and self._not_before.get(name, 0.0) <= now:
                    self._works[name] = make()
            names = [name for name in self._works if self._not_before.get(name, 0.0) <= now]
        if self._sync_due():
            self._sync()
        for name in names:
            if self._stopping:
                break
            self._slice(name, self._works[name])
        return bool(names)

    def _sync_due(self) -> bool:
        return self._node.commits.overdue or self._node.engine.state.log.sealed

    def _sync(self) -> None:
        """Sync the log. On a full disk this returns; the threads that need the sync wait."""
        with suppress(DiskFullError):
            self._node.commits.sync()

    def _slice(self, name: str, work: Work) -> None:
        """Run work until its slice of two milliseconds is over, with the jobs in between."""
        error: Exception | None = None
        while not self._stopping:
            with self._node.lock:
                step = self._step(name, work, error)
            error = None
            if step is None:
                return
            if isinstance(step, float):
                # The work waits for the log. The sync also publishes what is committed.
                self._sync()
                self._not_before[name] = monotonic() + step
                return
            try:
                step()
            except DiskFullError as failure:
                error = failure

    def _step(
        self, name: str, work: Work, error: Exception | None
    ) -> Callable[[], None] | float | None:
        """Run work until it waits; None when its slice or the work itself is over."""
        try:
            return run_slice(work, error, self._node.machine.steady_s)
        except StopIteration:
            del self._works[name]
            return None
        except DiskFullError as failure:
            log.warning(
                "background work waits for disk space", extra={"work": name, "why": str(failure)}
            )
            del self._works[name]
            self._not_before[name] = monotonic() + DISK_RETRY_SECONDS
            return None

    # ------------------------------------------------------------------ on the caller's thread

    def run_all(self) -> None:
        """Run everything that is due by now. Under the lock, which is not released."""
        node, engine = self._node, self._node.engine
        state, loader = engine.state, engine.dispatcher.loader
        now_ms = node.clock.now_ms()
        node.recent_lateness.look(now_ms, state.series)
        for _ in range(_MOVES_MAX):
            self.commit()
            more = engine.run_due(now_ms)
            if loader.loading:
                self.run_inline(loader.load_work())
            elif loader.laying_out:
                self.run_inline(loader.lay_out_work())
            elif not more and not state.log.pending_size and not state.exposures:
                break
        if not (
            now_ms - self._look_ms >= MANUAL_LOOK_MS
            or engine.housekeeping.flush_due()
            or state.jobs.by_number
            or state.transactions.unpublished
            or monotonic() - self._looked > MANUAL_LOOK_SECONDS
        ):
            return
        self._look_ms, self._looked = now_ms, monotonic()
        self._look(now_ms)
        if self._sync_due():
            node.commits.sync(locked=True)
        for _, make in list(self._due(now_ms)):
            self.run_inline(make())
            self.commit()
            engine.run_due(now_ms)

    def commit(self) -> None:
        """Commit what is appended as the fsync setting requires, and publish it. Under the lock."""
        node = self._node
        commits, end = node.commits, node.engine.state.log.end_position
        if commits.position() < end:
            commits.reach(end, locked=True)
        node.show_committed()

    def run_inline(self, work: Work) -> None:
        """Run work to its end on this thread."""
        self._node.engine.run_inline(work)

    def finish(self) -> None:
        """End of the broker: sync the log, then take a checkpoint. Under the lock."""
        node, engine = self._node, self._node.engine
        try:
            engine.run_inline(_sync_first())
            node.show_committed()
            engine.run_inline(self._chores.checkpoint())
        except DiskFullError as error:
            log.warning(
                "no space for a last checkpoint; the next start replays the log",
                extra={"why": str(error)},
            )
        engine.write_tick(node.clock.now_ms())


def _sync_first() -> Work:
    """Work that only waits until the log is synced."""
    yield 0.0
