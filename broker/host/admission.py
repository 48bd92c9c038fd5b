"""Admission: which calls wait for memory, and when disk space is too short for sends.

Sends wait while the tails of hours hold more than their limit, until the splitter has caught up.
`Space` watches the free space of the data folder, and keeps a reserve that is allocated in advance.
While free space is short, sends must be refused, so that stored messages can be delivered and
settled with the space of the reserve. This module only reports that state; callers refuse the
sends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from delaylog.broker.engine.engine import Engine
from delaylog.broker.host.background import Background
from delaylog.broker.host.log_commits import finish
from delaylog.storage.work import Work

if TYPE_CHECKING:
    from delaylog.broker.host.node import Node

# ----------------------------------------------------------------------------------- disk space

DISK_CHECK_SECONDS: Final = 0.5

log = logging.getLogger("delaylog.node")


class Space:
    """The space of one data folder."""

    def __init__(self, node: Node, now: Callable[[], float]) -> None:
        """`now` returns the seconds of a steady clock."""
        self._now = now
        self._node = node
        self._free_bytes = 1 << 62
        self._free_checked_s = -DISK_CHECK_SECONDS
        self._refilled_s = -DISK_CHECK_SECONDS
        self._loss_logged = False
        """Whether the reserve is not whole and this was logged."""
        self._refusal_logged = False

    def free_bytes(self) -> int:
        """Free space that sends may use: 0 while the disk is full or the reserve is not completely
        allocated.
        """
        if self._node.log_commits.disk_full or not self._node.engine.reserve.whole:
            return 0
        return self.measured_bytes()

    def measured_bytes(self) -> int:
        """Free space of the data folder's file system, measured at most twice a second."""
        now = self._now()
        if now - self._free_checked_s > DISK_CHECK_SECONDS:
            self._free_checked_s = now
            engine = self._node.engine
            self._free_bytes = engine.fs.free_bytes(engine.folder)
            if self._free_bytes < 2 * engine.limits.disk_reserve_bytes:
                # Delete files that are only a cache.
                engine.state.hot.clear()
        return self._free_bytes

    @property
    def refusing_sends(self) -> bool:
        """Whether sends are refused for lack of space."""
        return self.free_bytes() < self._node.engine.limits.disk_reserve_bytes

    def check(self) -> None:
        """Log when sends are refused, and a change of the reserve; have upkeep free the log early
        while space is short.
        """
        engine = self._node.engine
        reserve, refusing = engine.reserve, self.refusing_sends
        engine.upkeep.short_of_space = refusing
        if refusing != self._refusal_logged:
            self._refusal_logged = refusing
            room = {
                "free_bytes": self.measured_bytes(),
                "disk_reserve_bytes": engine.limits.disk_reserve_bytes,
            }
            if refusing:
                log.warning("sends are refused for lack of disk space", extra=room)
            else:
                log.warning("sends are accepted again: there is disk space", extra=room)
        if reserve.whole == self._loss_logged:
            self._loss_logged = not reserve.whole
            sizes = {"bytes_left": reserve.size_bytes, "bytes_whole": reserve.target_bytes}
            if reserve.whole:
                log.warning("the disk has space again and the reserve is allocated", extra=sizes)
            else:
                log.error(
                    "the disk is full: sends are refused, everything else uses the reserve",
                    extra=sizes,
                )

    def make_room(self) -> bool:
        """Give up a step of the reserve, on any thread; False if nothing is left of it."""
        return self._node.engine.reserve.give()

    def refill_due(self) -> bool:
        """Whether to try to allocate the reserve again."""
        return (
            not self._node.engine.reserve.whole
            and self._now() - self._refilled_s > DISK_CHECK_SECONDS
        )

    def refill(self) -> Work:
        """Allocate the reserve again if there is room."""
        self._refilled_s = self._now()
        yield self._node.engine.reserve.regrow
        self._free_checked_s = -DISK_CHECK_SECONDS


# --------------------------------------------------------------------------------------- memory

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
