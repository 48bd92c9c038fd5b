"""What an embedded broker does besides its calls: splitter, checkpoints, loads, retention, jobs.

A server does it between requests of its loop. Here a thread does it, a slice at a time under the
lock, with blocking work outside of the lock. Under a manual clock the thread that moved it, or that
called, does all of it at once. Of each name only one work runs at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic, sleep, thread_time
from typing import TYPE_CHECKING, Final

from delaylog.broker.log_commits import DISK_RETRY_SECONDS
from delaylog.broker.node_ticks import RETIRE_EVERY_MS, TICK_MS
from delaylog.storage.errors import DiskFullError
from delaylog.storage.work import Work

if TYPE_CHECKING:
    from delaylog.broker.embedded.node import EmbeddedNode

SLICE_SECONDS: Final = 0.002
MANUAL_LOOK_MS: Final = 3_600_000
"""Under a manual clock: the interval, on that clock, of upkeep that nothing else triggers."""
MANUAL_LOOK_SECONDS: Final = 1.0
"""The same in real time; the next call does the upkeep."""
_MOVES_MAX: Final = 100_000
"""Turns in a row in which a manual clock's broker finds more to do: it would never end."""

log = logging.getLogger("delaylog.embedded")


class Chores:
    """Runs background work of one node."""

    slice_seconds: Final = SLICE_SECONDS

    def __init__(self, node: EmbeddedNode) -> None:
        self._node = node
        self._works: dict[str, Work] = {}
        self._not_before: dict[str, float] = {}
        self._retire_ms = 0
        self._look_ms = 0
        self._looked = 0.0
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="delaylog-upkeep", daemon=True)

    def start(self) -> None:
        """Have a thread look after everything."""
        self._thread.start()

    def kick(self) -> None:
        """Look now."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread where it stands. Not under the lock."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        for work in self._works.values():
            work.close()
        self._works.clear()

    # ------------------------------------------------------------------ what there is to do

    def _due(self, now_ms: int) -> Iterator[tuple[str, Callable[[], Work]]]:
        """Work that wants to be run by now, the most urgent first."""
        node, engine = self._node, self._node.engine
        state, upkeep, loader = engine.state, engine.upkeep, engine.dispatcher.loader
        if loader.near:
            yield "load", loader.near_work
        if loader.far:
            yield "open", loader.far_work
        if engine.flush_due():
            yield "flush", self._flush_work
        if state.jobs.running() and engine.jobs.due(now_ms):
            yield "jobs", lambda: engine.jobs.work(node.clock.now_ms, self._ending)
        if state.transactions.unpublished and engine.publisher.due:
            yield (
                "publish",
                lambda: engine.publisher.work(node.clock.now_ms, thread_time, self._ending),
            )
        if engine.claims_due():
            yield "claims", lambda: engine.claims_work(node.clock.now_ms)
        if loader.laying_out:
            yield "lay out", loader.lay_out_work
        if engine.states_due():
            yield "states", engine.states_work
        if engine.split_due(now_ms):
            yield "split", lambda: engine.split_work(self._ending)
        if engine.merge_due():
            yield "merge", lambda: engine.merge_work(node.clock.now_ms, self._ending)
        if upkeep.checkpoint_due(now_ms):
            yield "checkpoint", lambda: upkeep.checkpoint(node.clock.now_ms)
        short = upkeep.short_of_space
        if upkeep.snapshots.due(now_ms, short_of_space=short):
            yield (
                "keyspace snapshot",
                lambda: upkeep.snapshots.work(
                    node.clock.now_ms, short_of_space=short, stopping=self._ending
                ),
            )
        if engine.compactor.due(now_ms):
            yield "compaction", lambda: engine.compactor.work(node.clock.now_ms, self._ending)
        if state.garbage:
            yield "discard", engine.discard_work
        if state.keyspace.garbage:
            yield "free", self._free_work
        if not engine.reserve.whole:
            yield "reserve", self._refill_work

    def _ending(self) -> bool:
        return self._stopping

    def _flush_work(self) -> Work:
        # Only what is on the disk goes to its hour, and not every dial sees to that by itself.
        if self._node.engine.state.committed() < self._node.engine.state.log.end_position:
            yield 0.0
        yield from self._node.engine.flush_work()

    def _free_work(self) -> Work:
        while self._node.engine.state.keyspace.free_slice():
            yield None

    def _refill_work(self) -> Work:
        yield self._node.engine.refill_reserve

    def _look(self, now_ms: int) -> None:
        """What is short enough to be done at once."""
        node, engine = self._node, self._node.engine
        engine.note_tick(now_ms)
        engine.upkeep.short_of_space = node.refusing_sends
        # The monitor of a served broker reads these; here nobody does.
        engine.state.take_activities()
        if now_ms >= self._retire_ms:
            self._retire_ms = now_ms + RETIRE_EVERY_MS
            engine.retire_unused(now_ms)

    # ------------------------------------------------------------------ a thread

    def _run(self) -> None:
        node = self._node
        while not self._stopping:
            try:
                busy = self._round()
            except Exception as error:
                log.critical("the embedded broker stops", exc_info=error)
                with node.lock:
                    node.fail(error)
                return
            if busy:
                # A lock that is let go of goes to whoever runs: let them run.
                sleep(0.0002 if node.wanted else 0)
            else:
                self._wake.wait(TICK_MS / 1000)
                self._wake.clear()

    def _round(self) -> bool:
        """A slice of each work; whether there is more to do at once."""
        node = self._node
        with node.lock:
            now_ms = node.clock.now_ms()
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
        """Sync the log; a full disk is waited out by those who need it."""
        with suppress(DiskFullError):
            self._node.commits.sync()

    def _slice(self, name: str, work: Work) -> None:
        """Up to two milliseconds of it, and the job that follows."""
        error: BaseException | None = None
        while not self._stopping:
            with self._node.lock:
                step = self._step(name, work, error)
            error = None
            if step is None:
                return
            if isinstance(step, float):
                # It waits for the log; what was committed has to be shown, too.
                self._sync()
                self._not_before[name] = monotonic() + step
                return
            try:
                step()
            except DiskFullError as failure:
                error = failure

    def _step(
        self, name: str, work: Work, error: BaseException | None
    ) -> Callable[[], None] | float | None:
        """Run work until it has to wait or its slice is over, which is None; so is its end."""
        began = monotonic()
        try:
            step = next(work) if error is None else work.throw(error)
            while step is None and monotonic() - began < SLICE_SECONDS:
                step = next(work)
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
        return step

    # ------------------------------------------------------------------ in somebody's turn

    def run_all(self) -> None:
        """Do everything that can be done by now. Under the lock, which is kept."""
        node, engine = self._node, self._node.engine
        state, loader = engine.state, engine.dispatcher.loader
        now_ms = node.clock.now_ms()
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
            or engine.flush_due()
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
        """Make what is appended as safe as the dial says, and show it. Under the lock."""
        node = self._node
        commits, end = node.commits, node.engine.state.log.end_position
        if commits.position() < end:
            commits.reach(end, locked=True)
        node.show_committed()

    def run_inline(self, work: Work) -> None:
        """Run work to its end, here."""
        self._node.engine.run_inline(work)

    def finish(self) -> None:
        """The last things: everything is durable, then a checkpoint. Under the lock."""
        node, engine = self._node, self._node.engine
        try:
            engine.run_inline(_sync_first())
            node.show_committed()
            engine.run_inline(engine.upkeep.checkpoint(node.clock.now_ms))
        except DiskFullError as error:
            log.warning(
                "no space for a last checkpoint; the next start replays the log",
                extra={"why": str(error)},
            )
        engine.write_tick(node.clock.now_ms())


def _sync_first() -> Work:
    """Have the log written and synced."""
    yield 0.0
