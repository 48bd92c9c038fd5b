"""Replace a node's engine, or only its keyspace, while the node goes on.

A node that lost its leadership builds a new engine over the same log. A node that received a copy
of another node's folder opens that copy. A keyspace that refused a frame is reloaded from the log.
The rule: an engine that is being replaced must not be used. `suspended` is True meanwhile, and
background work is halted first. Reading files for seconds happens on a thread; commits of the log
go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.errors import NO_LONGER_LEADS, NotLeadingError
from delaylog.broker.engine.keyspace.keyspace_files import LoadedKeyspace, reload_keyspace
from delaylog.storage.errors import CorruptionError
from delaylog.storage.log.physical_log import PhysicalLog

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node


class EngineExchange:
    """Replaces the engine of one node. All methods belong to the loop's thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.suspended = False
        """Whether the engine, or the whole folder, is being replaced and must not be used."""

    async def replace_engine(self, make: Callable[[LoadedKeyspace | None], Engine]) -> None:
        """Replace an engine that led by a new one, which `make` builds over the same log.

        Calls that had begun can still read the old engine while the keyspace is loaded; it makes
        no more changes. A cancelled caller waits until the new engine is in use: it may replace the
        folder next.
        """
        replacing = asyncio.ensure_future(self._replace_engine(make))
        try:
            await asyncio.shield(replacing)
        finally:
            await asyncio.gather(replacing, return_exceptions=True)

    async def _replace_engine(self, make: Callable[[LoadedKeyspace | None], Engine]) -> None:
        node, old = self._node, self._node.engine
        self.suspended = True
        try:
            loaded = await node.machine.in_thread(old.load_keyspace)
            old.close()
            # First, so that the new engine takes the memory that the old one gives back.
            await node.machine.in_thread(old.state.dismantle)
            node.adopt(await node.machine.in_thread(partial(make, loaded)))
            node.engine.state.inherit(old.state)
        finally:
            self.suspended = False

    async def restore_keyspace(self) -> None:
        """Reload a keyspace that refused a frame from the log; the rest of the engine goes on.

        Raises NotLeadingError if the engine loses its leadership meanwhile: the engine that
        replaces it has loaded the keyspace already.
        """
        node = self._node
        engine, state = node.engine, node.engine.state
        old, upto = state.keyspace, state.position
        assert old.condemned, "a keyspace that is not condemned could log frames meanwhile"
        await node.durable(upto)
        while True:
            base = replace(state.keyspace_base)
            try:
                keyspace = await node.machine.in_thread(
                    partial(reload_keyspace, engine.fs, engine.folder, base, upto, state.random)
                )
                break
            except CorruptionError:
                if state.keyspace_base.position == base.position:
                    raise
                # A new snapshot was made meanwhile, and the previous one was removed.
        if engine is not node.engine or state.retired or state.following:
            raise NotLeadingError(NO_LONGER_LEADS)
        keyspace.now_ms = old.now_ms
        keyspace.begin_expiring()
        state.keyspace = keyspace
        keyspace.inherit(old)
        node.kick_dispatch()

    async def suspend(self) -> None:
        """Stop using the engine and its log before the folder is replaced; only for a follower."""
        self.suspended = True
        await self._node.background.halt()
        await self._node.machine.in_thread(self._node.log_commits.stop)

    def resume(self, engine: Engine, log: PhysicalLog) -> None:
        """Continue with another engine over another log."""
        node = self._node
        old = node.engine
        node.adopt(engine)
        node.engine.state.inherit(old.state)
        node.log_commits.exchange(log)
        self.suspended = False
        node.background.go_on()
