"""What a node does without being called: the checks of every 50 ms, and the chores of its engine.

The checks cover the tick slot (how far the node has dispatched), the log, the hold, disk space and
due background work. On a leader they also retire unused topics and groups. `Chores` says which
background work is due: it is asked every 50 ms and on demand. Asking is cheap; all long steps are
in the work, which the node runs in slices, and never two of the same name at once.

A hold changes by calls, by the log and by the order of a folder. Calls that wait for messages end
when a hold begins, and what has become due is delivered when it ends. While it lasts, the log says
so each minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.errors import HeldError
from delaylog.broker.engine.hold import REFUSAL, Hold
from delaylog.broker.engine.state import EngineState
from delaylog.storage.work import Work

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node


CHECK_MS: Final = 50
RETIRE_EVERY_MS: Final = 5_000

Chore: TypeAlias = tuple[str, Callable[[], Work]]
"""A name, and the function that begins the work."""

log = logging.getLogger("delaylog.node")


class Chores:
    """The chores of a node's present engine."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._retire_ms = 0
        self._claims_ms = 0

    # ------------------------------------------------------------------ what is due

    def loads(self) -> Iterator[Chore]:
        """Chores that load messages that are due soon."""
        loader = self._node.engine.dispatcher.loader
        if loader.near:
            yield "load", loader.near_work
        if loader.far:
            yield "open", loader.far_work
        if loader.laying_out:
            yield "lay out", loader.lay_out_work

    def leading(self, now_ms: int) -> Iterator[Chore]:
        """Chores that append to the log, so that only a leader runs them."""
        engine = self._node.engine
        if engine.jobs.due(now_ms):
            yield "jobs", self.jobs
        if engine.publisher.due:
            yield "publish", self.publish
        if now_ms >= self._claims_ms:
            # `claims_due` scans every claim, so it is called seldom. Usually the caller finishes a
            # settle that it began; this is for callers that are gone, for example because the
            # previous leader ended.
            self._claims_ms = now_ms + RETIRE_EVERY_MS
            if engine.claims_due():
                yield "claims", self.claims

    def storing(self, now_ms: int) -> Iterator[Chore]:
        """Chores that write files or free space; `now_ms` is the time of the state."""
        node, engine = self._node, self._node.engine
        state, upkeep = engine.state, engine.upkeep
        if engine.housekeeping.flush_due():
            yield "flush", self.flush
        if engine.housekeeping.states_due():
            yield "states", engine.housekeeping.states_work
        if engine.housekeeping.split_due(now_ms):
            yield "split", lambda: engine.housekeeping.split_work(self._stopping)
        if engine.housekeeping.merge_due():
            yield "merge", lambda: engine.housekeeping.merge_work(node.state_ms, self._stopping)
        if engine.housekeeping.ids_due():
            yield "ids", lambda: engine.housekeeping.ids_work(self._stopping)
        if engine.housekeeping.texts_due():
            yield "texts", lambda: engine.housekeeping.texts_work(self._stopping)
        if upkeep.checkpoint_due(now_ms):
            yield "checkpoint", self.checkpoint
        if upkeep.snapshots.due(now_ms, short_of_space=upkeep.short_of_space):
            yield "keyspace snapshot", self._snapshot
        if engine.compactor.due(now_ms):
            yield "compaction", lambda: engine.compactor.work(node.state_ms, self._stopping)
        if state.unneeded_files:
            yield "discard", engine.housekeeping.discard_work
        if state.keyspace.garbage or state.replaced:
            yield "free", self.free
        if node.space.refill_due():
            yield "reserve", node.space.refill

    def retire_due(self, now_ms: int) -> bool:
        """Whether to retire unused topics and groups: True once every five seconds."""
        if now_ms < self._retire_ms:
            return False
        self._retire_ms = now_ms + RETIRE_EVERY_MS
        return True

    def begin_leading(self) -> None:
        """Look at once for unused topics and abandoned claims: as a follower this node did not."""
        self._retire_ms = self._claims_ms = 0

    # ------------------------------------------------------------------ the work

    def jobs(self) -> Work:
        """Jobs over many messages; they pause during a hand-over, so that the log stops growing."""
        return self._node.engine.jobs.work(self._node.state_ms, self._may_not_append)

    def publish(self) -> Work:
        """Publish the rows of committed transactions."""
        return self._node.engine.publisher.work(
            self._node.state_ms, self._node.machine.processor_s, self._may_not_append
        )

    def claims(self) -> Work:
        """Finish settling claims whose caller may be gone."""
        return self._node.engine.claims_work(self._node.state_ms)

    def flush(self) -> Work:
        """Flush the tails of hours to their files."""
        state = self._node.engine.state
        # Only durable rows may be flushed, and some fsync settings do not sync by themselves.
        if state.committed() < state.log.end_position:
            yield 0.0
        yield from self._node.engine.housekeeping.flush_work()

    def checkpoint(self) -> Work:
        """Write a checkpoint, and then apply retention."""
        return self._node.engine.upkeep.checkpoint(self._node.state_ms)

    def free(self) -> Work:
        """Free removed values of the keyspace, and what a replaced engine has left, in slices."""
        while self._node.engine.state.free_slice():
            yield None

    def _snapshot(self) -> Work:
        """Make a snapshot of the keyspace. A shutdown does not wait for it."""
        upkeep = self._node.engine.upkeep
        upkeep.snapshots.on_failure = _snapshot_failed
        return upkeep.snapshots.work(
            self._node.state_ms, short_of_space=upkeep.short_of_space, stopping=self._stopping
        )

    def _stopping(self) -> bool:
        return self._node.stopping

    def _may_not_append(self) -> bool:
        return self._node.stopping or not self._node.role.may_dispatch()


def _snapshot_failed(why: str) -> None:
    log.error(
        "no snapshot of the keyspace was made; the broker tries again and keeps the log until then",
        extra={"why": why},
    )


# -------------------------------------------------------------------- the checks of every 50 ms


class PeriodicChecks:
    """The checks of one node. All methods belong to the loop's thread."""

    def __init__(self, node: Node, on_fatal: Callable[[BaseException], None]) -> None:
        self._node = node
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Check every 50 ms from now on, until the node stops."""
        self._node.loop_lag.expect_timer(CHECK_MS / 1000)
        self._loop.call_later(CHECK_MS / 1000, self._run)

    def _run(self) -> None:
        node = self._node
        if node.stopping:
            return
        node.loop_lag.timer_fired()
        if node.suspended:
            self.start()
            return
        try:
            self._check(node.engine)
        except Exception as error:
            self._on_fatal(error)
            return
        self.start()

    def _check(self, engine: Engine) -> None:
        node, state = self._node, engine.state
        now_ms = node.clock.now_ms()
        engine.write_changed_tick(now_ms)
        node.recent_lateness.look(now_ms, state.series)
        if node.log_commits.sync_due() and not node.disk_full:
            node.log_commits.kick()
        if node.role.leading:
            self._check_as_leader(engine, now_ms)
        else:
            # The log of a follower carries the leader's time; the follower's clock may differ.
            now_ms = state.leader_time_ms
        node.holds.look(now_ms)
        node.space.check()
        for name, make in node.chores.storing(now_ms):
            node.spawn(name, make)

    def _check_as_leader(self, engine: Engine, now_ms: int) -> None:
        node = self._node
        while engine.schedules.warnings:
            log.warning(engine.schedules.warnings.pop())
        wake = engine.next_wake_ms()
        if wake is not None and wake <= now_ms:
            # The timer of releases measures elapsed time, so it misses that the clock was set
            # ahead.
            node.kick_dispatch()
        if not node.role.may_dispatch():
            return
        if node.chores.retire_due(now_ms):
            if wake is None or wake > now_ms:
                # Advance the wheel although nothing is due: otherwise past hours would not end.
                engine.run_due(now_ms)
            self._note_waiting(engine, now_ms)
            engine.retire_unused(now_ms)
            if engine.state.log.pending_size:
                node.appended()
        for name, make in node.chores.leading(now_ms):
            node.spawn(name, make)

    def _note_waiting(self, engine: Engine, now_ms: int) -> None:
        """Mark groups that have a waiting consumer as used, so that they are not retired."""
        topics = engine.state.topics
        for namespace, name, group_name in self._node.waiters.groups():
            topic = topics.get((namespace, name))
            group = None if topic is None else topic.group(group_name)
            if topic is not None and group is not None:
                topic.used_ms = group.used_ms = now_ms


# ------------------------------------------------------------------------------------- the hold

EVERY_SECONDS: Final = 60.0


class HoldWatch:
    """The hold of one node's engines. All methods belong to the loop's thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._seen: tuple[EngineState, Hold | None] = (node.engine.state, None)
        self._told_s = 0.0
        self.on_held: Callable[[], None] = lambda: None
        """Called when a hold begins, to end calls that wait for data."""

    def look(self, now_ms: int) -> None:
        """Carry out the order of the folder, act on a change, and remind the operator."""
        node, engine = self._node, self._node.engine
        position = engine.state.position
        engine.look_after_order(now_ms)
        if engine.state.position != position:
            node.appended()
        hold = engine.state.holding.now
        if self._seen != (engine.state, hold):
            was_held = self._seen[1] is not None
            self._seen = engine.state, hold
            if hold is not None:
                node.waiters.refuse(HeldError(REFUSAL, since_ms=hold.since_ms))
                self.on_held()
                self._tell(hold)
            elif was_held:
                log.info("the broker is released: it delivers, pushes and fires again")
            node.kick_dispatch()
        elif hold is not None and node.machine.steady_s() - self._told_s >= EVERY_SECONDS:
            self._tell(hold)

    def _tell(self, hold: Hold) -> None:
        self._told_s = self._node.machine.steady_s()
        log.warning(REFUSAL, extra={"since_ms": hold.since_ms, "note": hold.note})
