"""Admission: which calls have to wait for memory.

Sends wait while the tails of hours hold more than their limit, until the splitter has caught up.
`space` decides which calls are refused for lack of disk space.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from delaylog.broker.engine.engine import Engine
from delaylog.broker.host.background import Background
from delaylog.broker.host.commits.position_waiters import finish
from delaylog.broker.host.system.space import Space

UNCOMMITTED_SECONDS: Final = 0.01
"""Poll interval of senders that wait for room while the tails hold only uncommitted rows."""
CHANGES_SECONDS: Final = 0.05
"""Poll interval of changes that wait: writing all changed states may take long."""


class Admission:
    """Lets calls wait for room in memory. All methods belong to the loop's thread."""

    def __init__(
        self,
        engine: Callable[[], Engine],
        space: Space,
        background: Background,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`engine` returns the present engine: a node may replace its engine."""
        self._engine = engine
        self._space = space
        self._background = background
        self._loop = loop
        self._waiting: set[asyncio.Future[None]] = set()

    async def room(self, *, large: bool = False) -> None:
        """Wait while the tails hold more than their limit.

        The limit is lower for large sends. Returns at once while sends are refused for lack of disk
        space, and while the engine is exchanged, which may take seconds; callers then check whether
        the node still leads.
        """
        while (
            self._engine().housekeeping.crowded(large=large)
            and not self._background.exchanging
            and not self._space.refusing_sends
        ):
            waiting = self._engine().state.hours.pile.size_bytes
            self._background.spawn("flush", self._engine().housekeeping.flush_work)
            await self._work_ended()
            engine = self._engine()
            if (
                engine.housekeeping.crowded(large=large)
                and engine.state.hours.pile.size_bytes >= waiting
            ):
                # The flush wrote nothing, because the rows in the tails are not committed yet.
                await asyncio.sleep(UNCOMMITTED_SECONDS)

    async def room_for_changes(self, *, rows: bool = True) -> None:
        """Wait while changes fill memory faster than it is written.

        `rows` = the changes may add rows too, as reschedules do, so they wait for the splitter as
        well. Returns at once on a full disk, since a cancel frees space that the writes wait for.
        Returns at once also while no work would write anything: during a shutdown or an exchange
        of the engine.
        """
        while (
            self._engine().housekeeping.crowded_by_changes(rows=rows)
            and not self._space.refusing_sends
            and not self._background.refusing
            and not self._background.exchanging
        ):
            self._background.spawn("flush", self._engine().housekeeping.flush_work)
            self._background.spawn("states", self._engine().housekeeping.states_work)
            await self._work_ended(CHANGES_SECONDS)

    async def _work_ended(self, seconds: float | None = None) -> None:
        """Wait until some background work has ended, for at most `seconds`."""
        future = self._loop.create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            self._waiting.discard(future)

    def look_again(self) -> None:
        """Background work has ended: calls that wait for room check again."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            finish(future)
