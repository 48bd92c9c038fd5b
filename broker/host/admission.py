"""Admission: who has to wait for lack of space in memory.

Sends wait while the tails hold more than the splitter has to catch up with. Who is refused for lack
of space on the disk is said in `space`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from delaylog.broker.engine.engine import Engine
from delaylog.broker.host.background import Background
from delaylog.broker.host.commits.position_waiters import finish
from delaylog.broker.host.process.space import Space

UNCOMMITTED_SECONDS: Final = 0.01
"""Between looks of senders that wait for room while the tails hold only what is not committed."""
CHANGES_SECONDS: Final = 0.05
"""Between looks of changes that wait: writing all of what is changed may take long."""


class Admission:
    """Knows how much room there is. All methods belong to the loop's thread."""

    def __init__(
        self,
        engine: Callable[[], Engine],
        space: Space,
        background: Background,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`engine` says which engine it is about: a node's engine may be replaced."""
        self._engine = engine
        self._space = space
        self._background = background
        self._loop = loop
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def crowded(self) -> bool:
        """Whether sends have to wait for the splitter."""
        return self._engine().housekeeping.crowded()

    async def room(self, *, large: bool = False) -> None:
        """Wait while the tails hold more than the splitter has to catch up with.

        Large sends wait at a lower level. Returns at once while sends are refused for lack of disk
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
                # Nothing of it is committed.
                await asyncio.sleep(UNCOMMITTED_SECONDS)

    async def room_for_changes(self, *, rows: bool = True) -> None:
        """Wait while changes leave more in memory than gets written.

        `rows` = they may leave rows too, as reschedules do, so they wait for the splitter as well.
        Not on a full disk, where what is written waits for them: a cancel makes room. Nor while
        nothing would get written: work begins no more on the way out.
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
        """Wait until background work has ended, or so long."""
        future = self._loop.create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            self._waiting.discard(future)

    def look_again(self) -> None:
        """Background work has ended: who waits for room may find some."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            finish(future)
