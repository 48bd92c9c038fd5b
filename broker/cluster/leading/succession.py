"""Whether the engine leads or follows, and every way from one to the other.

One task applies what is committed while the node follows, and lets the engine lead once all of
the log is applied. When a leadership ends, an engine that has applied what may never be committed
is dropped: the next one stands on the newest checkpoint and follows. One that has seen nothing
but committed frames follows as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.keyspace.keyspace_files import LoadedKeyspace
from delaylog.broker.host.node import Node
from delaylog.replication.events import Serving

LAG_BYTES_MAX: Final = 512 << 10
"""A node that was just started replays its log before it can lead: a second or two for a megabyte
of small frames, while another one may serve at once. Under load a follower lies less than this
behind, and makes up for it in milliseconds when the leader is gone."""
FOLLOW_EVERY_SECONDS: Final = 0.02
"""Frames that are committed meanwhile are applied together: a wake for each costs more than they
do, and so much is made up for at once when this node is to lead."""


class Succession:
    """The engine's place. All methods belong to the loop's thread."""

    def __init__(
        self,
        node: Node,
        make_engine: Callable[[LoadedKeyspace | None], Engine],
        committed: Callable[[], int],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`make_engine` makes one that follows, with a keyspace that was loaded for it."""
        self._node = node
        self._make_engine = make_engine
        self._committed = committed
        self._on_fatal = on_fatal
        self.leading = False
        self._serving: Serving | None = None
        """The leadership that replication has and the engine has not taken up yet."""
        self._fallen = False
        """The engine led."""
        self._is_committed = False
        """Nothing that it had applied can be lost."""
        self._looking: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def lags(self) -> bool:
        """Whether so much is committed and not applied that another node had better lead."""
        if self._fallen and self._node.suspended:
            # What is loaded for the next engine ends at a checkpoint, however far this one was.
            return True
        return self._committed() - self._node.engine.state.position > LAG_BYTES_MAX

    def start(self) -> None:
        """Begin to follow, also after `stop`, with another engine.

        Replication may lead by now: a leader hands over as soon as a node is connected.
        """
        self._wake.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End where it stands."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        settled = self._is_committed and not self._node.engine.state.keyspace.is_ahead
        if self._fallen and settled:
            # It has led until now; as a follower it takes a last checkpoint like any other.
            async with self._node.background.halted():
                self._node.engine.stand_down()
        self._serving, self._fallen = None, False

    def look(self) -> None:
        """More may be committed."""
        if self._serving is not None:
            self._wake.set()
        elif self._looking is None and self._committed() > self._node.engine.state.position:
            loop = asyncio.get_running_loop()
            self._looking = loop.call_later(FOLLOW_EVERY_SECONDS, self._look_now)

    def _look_now(self) -> None:
        self._looking = None
        self._wake.set()

    def serve(self, event: Serving) -> None:
        """Replication leads: the engine is to follow suit."""
        self._serving = event
        self._wake.set()

    def step_down(self, commit: int) -> None:
        """Replication leads no more; `commit` = what stays."""
        self._serving = None
        if self.leading:
            self.leading = False
            self._fallen = True
            state = self._node.engine.state
            # Effects that are not in the log can be lost like frames that are not committed.
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
                if self._is_committed and not node.engine.state.keyspace.is_ahead:
                    node.engine.stand_down()
                else:
                    await node.replace_engine(self._make_engine)
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
