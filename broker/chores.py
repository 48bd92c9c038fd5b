"""What an engine wants done besides calls, and what of it is due.

A node and an embedded broker ask alike, every 50 ms and when something calls for it, and run each
work in slices, one of a name at a time. Each look is short: what takes time is work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from time import thread_time
from typing import Final, Protocol, TypeAlias

from delaylog.broker.engine import Engine
from delaylog.broker.space import Space
from delaylog.broker.standing import Standing
from delaylog.storage.work import Work

TICK_MS: Final = 50
RETIRE_EVERY_MS: Final = 5_000

Chore: TypeAlias = tuple[str, Callable[[], Work]]
"""Its name, and what begins it."""

log = logging.getLogger("delaylog.node")


class Host(Protocol):
    """Whose engine it is."""

    @property
    def engine(self) -> Engine:
        """The engine, which may be replaced."""

    @property
    def standing(self) -> Standing:
        """What it may do at the moment."""

    @property
    def space(self) -> Space:
        """The space of its disk."""

    @property
    def stopping(self) -> bool:
        """Whether it is on its way out: work that may be cut short ends."""

    def state_ms(self) -> int:
        """The time of what the engine holds."""


class Chores:
    """The chores of one engine after the other."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._retire_ms = 0

    # ------------------------------------------------------------------ what is due

    def loads(self) -> Iterator[Chore]:
        """Hours and seconds that are near."""
        loader = self._host.engine.dispatcher.loader
        if loader.near:
            yield "load", loader.near_work
        if loader.far:
            yield "open", loader.far_work
        if loader.laying_out:
            yield "lay out", loader.lay_out_work

    def leading(self, now_ms: int) -> Iterator[Chore]:
        """What appends to the log, so that only a leader does it."""
        engine = self._host.engine
        if engine.jobs.due(now_ms):
            yield "jobs", self.jobs
        if engine.publisher.due:
            yield "publish", self.publish
        if engine.claims_due():
            # Whoever began that may have gone, as with another leader.
            yield "claims", self.claims

    def storing(self, now_ms: int) -> Iterator[Chore]:
        """Pages, tails, checkpoints, and what is of no more use, by the time of the state."""
        host, engine = self._host, self._host.engine
        state, upkeep = engine.state, engine.upkeep
        if engine.flush_due():
            yield "flush", self.flush
        if engine.states_due():
            yield "states", engine.states_work
        if engine.split_due(now_ms):
            yield "split", lambda: engine.split_work(self._stopping)
        if engine.merge_due():
            yield "merge", lambda: engine.merge_work(host.state_ms, self._stopping)
        if upkeep.checkpoint_due(now_ms):
            yield "checkpoint", self.checkpoint
        if upkeep.snapshots.due(now_ms, short_of_space=upkeep.short_of_space):
            yield "keyspace snapshot", self._snapshot
        if engine.compactor.due(now_ms):
            yield "compaction", lambda: engine.compactor.work(host.state_ms, self._stopping)
        if state.garbage:
            yield "discard", engine.discard_work
        if state.keyspace.garbage:
            yield "free", self.free
        if host.space.refill_due():
            yield "reserve", host.space.refill

    def retire_due(self, now_ms: int) -> bool:
        """Whether to look for topics and groups that have ended, as every five seconds."""
        if now_ms < self._retire_ms:
            return False
        self._retire_ms = now_ms + RETIRE_EVERY_MS
        return True

    def begin_leading(self) -> None:
        """What has ended meanwhile is looked for at once."""
        self._retire_ms = 0

    # ------------------------------------------------------------------ the work

    def jobs(self) -> Work:
        """Jobs over many messages. While a node hands over they pause: the log has to end."""
        return self._host.engine.jobs.work(self._host.state_ms, self._may_not_append)

    def publish(self) -> Work:
        """Bring the rows of committed transactions in."""
        return self._host.engine.publisher.work(
            self._host.state_ms, thread_time, self._may_not_append
        )

    def claims(self) -> Work:
        """Settle what was begun with claims: whoever asked for it may have gone."""
        return self._host.engine.claims_work(self._host.state_ms)

    def flush(self) -> Work:
        """Move tails to the files of their hours."""
        state = self._host.engine.state
        # Only what is on the disk goes to its hour, and not every dial sees to that by itself.
        if state.committed() < state.log.end_position:
            yield 0.0
        yield from self._host.engine.flush_work()

    def checkpoint(self) -> Work:
        """A whole checkpoint with its retention."""
        return self._host.engine.upkeep.checkpoint(self._host.state_ms)

    def free(self) -> Work:
        """Take apart what was removed from the keyspace, between other things."""
        while self._host.engine.state.keyspace.free_slice():
            yield None

    def _snapshot(self) -> Work:
        """A snapshot of the keyspace; the end of the node does not wait for one."""
        upkeep = self._host.engine.upkeep
        upkeep.snapshots.on_failure = _snapshot_failed
        return upkeep.snapshots.work(
            self._host.state_ms, short_of_space=upkeep.short_of_space, stopping=self._stopping
        )

    def _stopping(self) -> bool:
        return self._host.stopping

    def _may_not_append(self) -> bool:
        return self._host.stopping or not self._host.standing.may_turn()


def _snapshot_failed(why: str) -> None:
    log.error(
        "no snapshot of the keyspace was made; it is tried again, and the log kept until then",
        extra={"why": why},
    )
