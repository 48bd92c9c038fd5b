"""The chores of an engine: its background work, and which chores are due.

A node asks for due chores every 50 ms, and on demand. It runs chores in slices, and never two of
the same name at once. Asking is cheap; all long steps are in the work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

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
