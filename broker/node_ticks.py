"""What a node checks every 50 ms, whether or not a client calls.

The tick slot (how far it has dispatched), checkpoints and snapshots, pages and tails to be written,
space on the disk, and while it leads topics, groups and claims that have ended. Each look is short:
what takes time is background work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from delaylog.broker.engine import Engine
from delaylog.storage.work import Work

if TYPE_CHECKING:
    from delaylog.broker.node import Node

TICK_MS: Final = 50
RETIRE_EVERY_MS: Final = 5_000

log = logging.getLogger("delaylog.node")


class Ticks:
    """The looks at one node. All methods belong to the loop's thread."""

    def __init__(self, node: Node, on_fatal: Callable[[BaseException], None]) -> None:
        self._node = node
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        self._retire_ms = 0

    def start(self) -> None:
        """Look from now on, until the node stops."""
        self._node.loop_lag.expect_tick(TICK_MS / 1000)
        self._loop.call_later(TICK_MS / 1000, self._tick)

    def begin_leading(self) -> None:
        """What has ended meanwhile is looked for at once."""
        self._retire_ms = 0

    def _tick(self) -> None:
        node = self._node
        if node.stopping:
            return
        node.loop_lag.tick()
        if node.suspended:
            self.start()
            return
        try:
            self._look(node.engine)
        except Exception as error:
            self._on_fatal(error)
            return
        self.start()

    def _look(self, engine: Engine) -> None:
        node, state = self._node, engine.state
        now_ms = node.clock.now_ms()
        engine.note_tick(now_ms)
        unsynced = state.log.end_position > state.log.durable_position
        if (unsynced or state.log.sealed) and not node.disk_full:
            node.log_commits.kick()
        if node.standing.leading:
            self._look_as_leader(engine, now_ms)
        else:
            # A follower's own clock says nothing about the log that it follows.
            now_ms = state.told_ms
        node.admission.look_after_space()
        if engine.upkeep.checkpoint_due(now_ms):
            node.spawn("checkpoint", node.checkpoint_work)
        short = engine.upkeep.short_of_space
        if engine.upkeep.snapshots.due(now_ms, short_of_space=short):
            node.spawn("keyspace snapshot", self._snapshot_work)
        if state.keyspace.garbage:
            node.free_garbage()
        if engine.compactor.due(now_ms):
            node.spawn("compaction", self._compaction_work)
        if engine.states_due():
            node.spawn("states", engine.states_work)
        if engine.flush_due():
            node.spawn("flush", engine.flush_work)
        if engine.split_due(now_ms):
            node.spawn("split", lambda: engine.split_work(self._stopping))
        if engine.merge_due():
            node.spawn("merge", lambda: engine.merge_work(node.state_ms, self._stopping))
        if state.garbage:
            node.spawn("discard", engine.discard_work)

    def _look_as_leader(self, engine: Engine, now_ms: int) -> None:
        node = self._node
        wake = engine.next_wake_ms()
        if wake is not None and wake <= now_ms:
            # The timer counts time that passes; a clock that was set ahead shows here.
            node.kick_dispatch()
        if not node.standing.may_turn():
            return
        if now_ms >= self._retire_ms:
            self._retire_ms = now_ms + RETIRE_EVERY_MS
            if wake is None or wake > now_ms:
                # The tick goes on while nothing is due: hours that are over end by it.
                engine.run_due(now_ms)
            self._note_waiting(engine, now_ms)
            engine.retire_unused(now_ms)
            if engine.state.log.pending_size:
                node.appended()
            if engine.claims_due():
                # Whoever began that may have gone, as with another leader.
                node.kick_claims()
        if engine.jobs.due(now_ms):
            node.kick_jobs()
        if engine.publisher.due:
            node.kick_publish()

    def _note_waiting(self, engine: Engine, now_ms: int) -> None:
        """Whoever waits for a group uses it, however long ago it asked."""
        topics = engine.state.topics
        for namespace, name, group_name in self._node.waiters.groups():
            topic = topics.get((namespace, name))
            group = None if topic is None else topic.group(group_name)
            if topic is not None and group is not None:
                topic.used_ms = group.used_ms = now_ms

    def _stopping(self) -> bool:
        return self._node.stopping

    def _compaction_work(self) -> Work:
        node = self._node
        return node.engine.compactor.work(node.state_ms, self._stopping)

    def _snapshot_work(self) -> Work:
        """A snapshot of the keyspace; the end of the node does not wait for one."""
        node, upkeep = self._node, self._node.engine.upkeep
        upkeep.snapshots.on_failure = _snapshot_failed
        return upkeep.snapshots.work(
            node.state_ms,
            short_of_space=upkeep.short_of_space,
            stopping=self._stopping,
        )


def _snapshot_failed(why: str) -> None:
    log.error(
        "no snapshot of the keyspace was made; it is tried again, and the log kept until then",
        extra={"why": why},
    )
