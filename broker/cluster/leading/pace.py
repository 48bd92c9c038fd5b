"""When a leader's rounds go out, what they say of dispatch, and who waits for their answers.

Messages are handed out while the gate is open: a majority has taken a tick a moment ago. So rounds
go out more often from a little before anything is due until a little after something was handed
out, and the gate never closes by itself then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from delaylog.broker.cluster.boot_clock import boot_ms
from delaylog.broker.cluster.leading.gate_waiters import GateWaiters
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host.node import Node
from delaylog.replication.node import ReplicationNode
from delaylog.replication.timing import Now

BUSY_AHEAD_MS: Final = 100
"""Rounds go out more often from so long before anything is due, for the gate to be open then."""
BUSY_AFTER_MS: Final = 200
"""And for so long after something was handed out: more may come."""


class Pace:
    """The rounds of one node, while it leads."""

    def __init__(
        self,
        node: Node,
        *,
        serving: Callable[[], ReplicationNode | None],
        committed: Callable[[], int],
        rearm: Callable[[], None],
    ) -> None:
        """`serving` = replication while the engine leads, else None; `rearm` is called when rounds
        go out more, or less, often than before.
        """
        self._node = node
        self._serving = serving
        self._committed = committed
        self._rearm = rearm
        self._gate = GateWaiters()
        self._handed_ms = -BUSY_AFTER_MS

    def now(self) -> Now:
        """The two times."""
        return Now(boot_ms(), self._node.clock.now_ms())

    # ------------------------------------------------------------------ the gate

    def gate_open(self) -> bool:
        """Whether messages may be handed out at this moment."""
        replication = self._serving()
        if replication is None or not replication.leadership.may_append():
            return False
        return replication.leadership.may_dispatch(self.now())

    async def until_gate_open(self, seconds: float) -> bool:
        """Wait for that; False if the time is up. Raises NotLeadingError."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self.gate_open():
            replication = self._serving()
            if replication is None:
                raise NotLeadingError("this node leads no more; ask the leader")
            left = until - loop.time()
            if left <= 0:
                return False
            waiting = self._gate.wait(left)
            if not replication.leadership.busy:
                # A round now: somebody waits for its answer.
                replication.leadership.busy = True
                self._rearm()
            await waiting
        self._handed_ms = boot_ms()
        return True

    def look(self) -> None:
        """The gate may be open now."""
        if len(self._gate) and self.gate_open():
            self._gate.open()

    def let_go(self) -> None:
        """The leadership has ended: who waits is told."""
        self._gate.open()

    # ------------------------------------------------------------------ rounds

    def note_busy(self) -> None:
        """See whether rounds are to go out more often."""
        replication = self._serving()
        if replication is None:
            return
        wake_ms = self._node.engine.next_wake_ms()
        near = wake_ms is not None and wake_ms - self._node.clock.now_ms() < BUSY_AHEAD_MS
        lately = boot_ms() - self._handed_ms < BUSY_AFTER_MS
        busy = near or lately or len(self._gate) > 0 or replication.leadership.hands_over
        if busy != replication.leadership.busy:
            replication.leadership.busy = busy
            self._rearm()

    def publish(self) -> None:
        """Say how far the wheel has got, and what it covers."""
        replication = self._serving()
        leader = None if replication is None else replication.leader
        if replication is None or leader is None or not leader.serving:
            return
        state, order = self._node.engine.state, leader.order
        if replication.leadership.may_append():
            place = (state.tick.second, state.tick.local_index)
            if place > (order.tick.second, order.tick.local_index):
                order.begin(*place)
                order.finish(self._node.clock.now_ms())
        if not state.exposures:
            _, end = order.take(min(leader.commit, self._committed()))
            order.cover(end)
