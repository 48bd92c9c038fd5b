"""The free space of a data folder, and its reserve: space that is allocated in advance.

While free space is short, sends must be refused, so that stored messages can be delivered and
settled with the space of the reserve. This module only reports the state; callers refuse the sends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from delaylog.broker.engine.engine import Engine
from delaylog.storage.work import Work

DISK_CHECK_SECONDS: Final = 0.5

log = logging.getLogger("delaylog.node")


class Commits(Protocol):
    """The commits of the log."""

    disk_full: bool
    """Whether they wait for disk space."""


class Owner(Protocol):
    """The node, which may replace its engine."""

    engine: Engine

    @property
    def log_commits(self) -> Commits:
        """The commits of its log."""


class Space:
    """The space of one data folder."""

    def __init__(self, owner: Owner, now: Callable[[], float]) -> None:
        """`now` returns the seconds of a steady clock."""
        self._now = now
        self._owner = owner
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
        if self._owner.log_commits.disk_full or not self._owner.engine.reserve.whole:
            return 0
        return self.measured_bytes()

    def measured_bytes(self) -> int:
        """Free space of the data folder's file system, measured at most twice a second."""
        now = self._now()
        if now - self._free_checked_s > DISK_CHECK_SECONDS:
            self._free_checked_s = now
            engine = self._owner.engine
            self._free_bytes = engine.fs.free_bytes(engine.folder)
            if self._free_bytes < 2 * engine.limits.disk_reserve_bytes:
                # Delete files that are only a cache.
                engine.state.hot.clear()
        return self._free_bytes

    @property
    def refusing_sends(self) -> bool:
        """Whether sends are refused for lack of space."""
        return self.free_bytes() < self._owner.engine.limits.disk_reserve_bytes

    def check(self) -> None:
        """Log when sends are refused, and a change of the reserve; have upkeep free the log early
        while space is short.
        """
        engine = self._owner.engine
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
        return self._owner.engine.reserve.give()

    def refill_due(self) -> bool:
        """Whether to try to allocate the reserve again."""
        return (
            not self._owner.engine.reserve.whole
            and self._now() - self._refilled_s > DISK_CHECK_SECONDS
        )

    def refill(self) -> Work:
        """Allocate the reserve again if there is room."""
        self._refilled_s = self._now()
        yield self._owner.engine.reserve.regrow
        self._free_checked_s = -DISK_CHECK_SECONDS
