"""How many bytes of replies Redis clients may leave unread: a share of `resp-maxmemory`.

A few bytes ask for a large reply, and how fast it is read is the client's affair. While clients
leave more than the share, commands of all wait. Mostly that takes milliseconds. If it takes longer,
the client that has not read for longest is closed (Redis closes some by `maxmemory-clients`).
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from delaylog.broker.resp.connection import Connection

_SHARE: Final = 4
"""A quarter."""
PATIENCE_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.1


class ReplyBound:
    """One process's. All methods belong to the loop's thread."""

    def __init__(self, maxmemory: int, loop: AbstractEventLoop, shed: Callable[[], None]) -> None:
        """`maxmemory` in bytes, 0 = no bound. `shed` closes who has not read for longest."""
        self._bytes_max = maxmemory // _SHARE
        self._loop = loop
        self._shed = shed
        self._bytes = 0
        self._waiting: dict[Connection, None] = {}
        self._timer: TimerHandle | None = None

    @property
    def is_used_up(self) -> bool:
        """Whether commands have to wait."""
        return self._bytes > self._bytes_max > 0

    def wait(self, connection: Connection) -> None:
        """Tell this one when commands run again."""
        self._waiting[connection] = None

    def count(self, change: int) -> None:
        """So many bytes more are unread, or fewer."""
        self._bytes += change
        if not self.is_used_up:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting:
                connection.finished()
        elif self._timer is None:
            self._timer = self._loop.call_later(PATIENCE_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        if self.is_used_up:
            self._shed()
            self._timer = self._loop.call_later(_LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
