"""Admission: who has to wait, or is refused, for lack of space on disk or in memory.

Sends are refused while the disk is short of space, so that what is stored can go on from the
reserve; they wait while the tails hold more than the splitter has to catch up with. It only
answers: the interfaces raise the refusal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter
from typing import Final

from delaylog.broker.background import Background
from delaylog.broker.engine import Engine
from delaylog.broker.log_commits import LogCommits
from delaylog.storage.work import Work

DISK_LOOK_SECONDS: Final = 0.5
UNCOMMITTED_SECONDS: Final = 0.01
"""Between looks of senders that wait for room while the tails hold only what is not committed."""
CHANGES_SECONDS: Final = 0.05
"""Between looks of changes that wait: writing all of what is changed may take long."""

log = logging.getLogger("delaylog.node")


class Admission:
    """Knows how much room there is. All methods belong to the loop's thread."""

    def __init__(
        self,
        engine: Callable[[], Engine],
        commits: LogCommits,
        background: Background,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`engine` says which engine it is about: a node's engine may be replaced."""
        self._engine = engine
        self._commits = commits
        self._background = background
        self._loop = loop
        self._waiting: set[asyncio.Future[None]] = set()
        self._free_bytes = 1 << 62
        self._free_looked = 0.0
        self._reserve_looked = 0.0
        self._reserve_told = False
        """Whether the loss of the reserve has been logged."""

    # ------------------------------------------------------------------ space on disk

    def free_bytes(self) -> int:
        """Free space of the data folder, looked at twice a second.

        0 while the disk is full or the reserve does not stand.
        """
        engine = self._engine()
        if self._commits.disk_full or not engine.reserve.whole:
            return 0
        now = perf_counter()
        if now - self._free_looked > DISK_LOOK_SECONDS:
            self._free_looked = now
            self._free_bytes = engine.fs.free_bytes(engine.folder)
            if self._free_bytes < 2 * engine.limits.disk_reserve_bytes:
                # Copies that only save time make room for messages.
                engine.state.hot.clear()
        return self._free_bytes

    @property
    def refusing_sends(self) -> bool:
        """Whether sends are refused for lack of space."""
        return self.free_bytes() < self._engine().limits.disk_reserve_bytes

    def look_after_space(self) -> None:
        """Make the reserve again when there is room; while there is none, free old log early."""
        engine = self._engine()
        reserve = engine.reserve
        engine.upkeep.short_of_space = self.refusing_sends
        if reserve.whole == self._reserve_told:
            self._reserve_told = not reserve.whole
            sizes = {"bytes_left": reserve.size_bytes, "bytes_whole": reserve.target_bytes}
            if reserve.whole:
                log.warning("the disk has space again and the reserve stands", extra=sizes)
            else:
                log.error(
                    "the disk is full; sends are refused, the rest goes on from the reserve",
                    extra=sizes,
                )
        now = perf_counter()
        if not reserve.whole and now - self._reserve_looked > DISK_LOOK_SECONDS:
            self._reserve_looked = now
            self._background.spawn("reserve", self._refill_reserve)

    def _refill_reserve(self) -> Work:
        yield self._engine().refill_reserve
        self._free_looked = 0.0

    # ------------------------------------------------------------------ room in memory

    @property
    def crowded(self) -> bool:
        """Whether sends have to wait for the splitter."""
        return self._engine().crowded()

    async def room(self, *, large: bool = False) -> None:
        """Wait while the tails hold more than the splitter has to catch up with.

        Large sends wait at a lower level. Returns at once while sends are refused for lack of disk
        space, and while the engine is exchanged, which may take seconds; callers then check whether
        the node still leads.
        """
        while (
            self._engine().crowded(large=large)
            and not self._background.exchanging
            and not self.refusing_sends
        ):
            waiting = self._engine().state.hours.pile.size_bytes
            self._background.spawn("flush", self._engine().flush_work)
            await self._work_ended()
            engine = self._engine()
            if engine.crowded(large=large) and engine.state.hours.pile.size_bytes >= waiting:
                # Nothing of it is committed.
                await asyncio.sleep(UNCOMMITTED_SECONDS)

    async def room_for_changes(self, *, rows: bool = True) -> None:
        """Wait while changes leave more in memory than gets written.

        `rows` = they may leave rows too, as reschedules do, so they wait for the splitter as well.
        Not on a full disk, where what is written waits for them: a cancel makes room. Nor while
        nothing would get written: work begins no more on the way out.
        """
        while (
            self._engine().crowded_by_changes(rows=rows)
            and not self.refusing_sends
            and not self._background.refusing
            and not self._background.exchanging
        ):
            self._background.spawn("flush", self._engine().flush_work)
            self._background.spawn("states", self._engine().states_work)
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
            if not future.done():
                future.set_result(None)
