"""Whether the engine leads or follows, and the transitions between the two.

One task applies committed frames while the node follows, and makes the engine lead once the whole
log is applied. When a leadership ends, an engine that has applied frames which may never be
committed is discarded, and a new one starts from the newest checkpoint. An engine that has applied
committed frames only follows as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.keyspace.keyspace_files import LoadedKeyspace
from delaylog.broker.host.node import Node
from delaylog.replication.messages import Serving

LAG_BYTES_MAX: Final = 512 << 10
"""A node that was just started replays its log before it can lead: a second or two for a megabyte
of small frames, while another node may serve at once. Under load a follower is less than this
behind, and catches up in milliseconds when the leader is gone."""
FOLLOW_EVERY_SECONDS: Final = 0.02
"""Frames that are committed in this time are applied together: one wake-up for each would cost
more than the frames, and this much is caught up at once when this node has to lead."""


class Succession:
    """The succession of one node. All methods belong to the loop's thread."""

    def __init__(
        self,
        node: Node,
        make_engine: Callable[[LoadedKeyspace | None], Engine],
        committed: Callable[[], int],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`make_engine` makes an engine that follows, with the keyspace that was loaded for it."""
        self._node = node
        self._make_engine = make_engine
        self._committed = committed
        self._on_fatal = on_fatal
        self.leading = False
        self._serving: Serving | None = None
        """The leadership that replication has and the engine has not begun yet."""
        self._fallen = False
        """The leadership of the engine has ended, and the engine does not follow yet."""
        self._is_committed = False
        """Whether everything that it had applied is committed."""
        self._looking: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def lags(self) -> bool:
        """Whether so much committed log is not applied that another node should lead."""
        if self._fallen and self._node.suspended:
            # The next engine starts from a checkpoint, however far the previous one was.
            return True
        return self._committed() - self._node.engine.state.position > LAG_BYTES_MAX

    def start(self) -> None:
        """Begin to follow; also after `stop`, with another engine.

        Replication may lead already: a leader may hand over as soon as a node is connected.
        """
        self._wake.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop applying; the engine stays as it is."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        settled = self._is_committed and not self._node.engine.state.keyspace.is_ahead
        if self._fallen and settled:
            # As a follower it writes a last checkpoint like any other engine.
            async with self._node.background.halted():
                self._node.engine.step_down()
        self._serving, self._fallen = None, False

    def look(self) -> None:
        """Apply what may have been committed since."""
        if self._serving is not None:
            self._wake.set()
        elif self._looking is None and self._committed() > self._node.engine.state.position:
            loop = asyncio.get_running_loop()
            self._looking = loop.call_later(FOLLOW_EVERY_SECONDS, self._look_now)

    def _look_now(self) -> None:
        self._looking = None
        self._wake.set()

    def serve(self, event: Serving) -> None:
        """Replication leads: the engine has to lead as well."""
        self._serving = event
        self._wake.set()

    def step_down(self, commit: int) -> None:
        """Replication no longer leads; frames before `commit` stay."""
        self._serving = None
        if self.leading:
            self.leading = False
            self._fallen = True
            state = self._node.engine.state
            # Effects that are not in the log yet can be lost, like frames that are not committed.
            self._is_committed = state.position <= commit and not state.keyspace.is_ahead
            state.retire(min(commit, state.log.durable_position))
        self._wake.set()

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._go_on()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._on_fatal(error)

    async def _go_on(self) -> None:
        node = self._node
        if self._fallen:
            async with node.background.halted():
                try:
                    if self._is_committed and not node.engine.state.keyspace.is_ahead:
                        node.engine.step_down()
                    else:
                        await node.exchange.replace_engine(self._make_engine)
                finally:
                    # Also if this was cancelled: then it has waited for the new engine.
                    self._fallen = False
            self._wake.set()
            return
        if self.leading:
            return
        state = node.engine.state
        while (upto := self._committed()) > state.position:
            await node.run(node.engine.follow(upto))
            node.on_applied()
        serving = self._serving
        if serving is not None and state.position == state.log.end_position:
            self._serving = None
            node.engine.lead(node.clock.now_ms(), serving.tick.time_ms)
            self.leading = True
            node.begin_leading()
