"""The periodic checks of a node: every 50 ms, whether or not a client calls.

They cover the tick slot (how far the node has dispatched), the log, disk space and due background
work (`chores`). On a leader they also retire unused topics and groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from delaylog.broker.engine.engine import Engine
from delaylog.broker.host.chores import CHECK_MS

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node


log = logging.getLogger("delaylog.node")


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
