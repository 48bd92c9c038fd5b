"""Bounds the reply bytes that Redis clients leave unread, to a quarter of `resp-maxmemory`.

A short command can ask for a large reply, and the client decides when to read it. While unread
replies use up the bound, large replies of commands that only read are deferred; small replies and
writes go on. Clients that read nothing for `PATIENCE_SECONDS` are closed, largest first. Replies
that cannot be deferred (writes, scripts, published messages) may use up the bound once more: beyond
that, clients are closed at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

SHARE: Final = 4
"""Unread replies may take one quarter of `resp-maxmemory`."""
PATIENCE_SECONDS: Final = 0.5
"""A client may read nothing for this time, which covers a lost packet, before it is closed."""
STARVED_SECONDS: Final = 5.0
"""While replies are deferred for this time without a break, the largest unread reply is closed even
if its client reads: clients that read a few bytes a second must not use up the bound for hours.
"""
LOOK_SECONDS: Final = 0.1


class Client(Protocol):
    """The part of a connection that the bound uses."""

    read_at: float
    """Loop time at which the client last read, or at which its oldest unread reply was written."""

    @property
    def unread_bytes(self) -> int:
        """Bytes that were written and not read; 0 while all replies still wait for the log."""

    def note_progress(self, now: float) -> None:
        """Set `read_at` to `now` if the client may have read since the last call."""

    def finished(self) -> None:
        """Run commands again: replies have room."""


class Timer(Protocol):
    """A timer of the loop."""

    def cancel(self) -> None:
        """Cancel it."""


class Clock(Protocol):
    """The part of an event loop that is used."""

    def time(self) -> float:
        """Return the seconds of a monotonic clock."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer:
        """Call `callback` after `delay` seconds."""


C = TypeVar("C", bound=Client)


class ReplyBound(Generic[C]):
    """The bound of one process. All methods belong to the loop's thread."""

    def __init__(
        self,
        maxmemory: int,
        loop: Clock,
        *,
        close: Callable[[C], None],
        on_room: Callable[[], None],
    ) -> None:
        """`maxmemory` in bytes, 0 = no bound. `close` closes a client and drops its replies before
        it returns. `on_room` is called when deferred replies have room again.
        """
        self._bytes_max = maxmemory // SHARE
        self._loop = loop
        self._close = close
        self._on_room = on_room
        self._bytes = 0
        self._sizes: dict[C, int] = {}
        """Clients with counted replies."""
        self._waiting: dict[C, None] = {}
        self._others_wait = False
        """Replies of blocked commands are deferred; `on_room` creates them."""
        self._used_up_since = 0.0
        self._timer: Timer | None = None
        self._closing = False

    @property
    def is_used_up(self) -> bool:
        """Whether large replies of commands that only read are deferred."""
        return self._bytes > self._bytes_max > 0

    def wait(self, client: C) -> None:
        """Call `client.finished()` when replies have room."""
        self._waiting[client] = None

    def wait_for_room(self) -> None:
        """Call `on_room` when replies have room."""
        self._others_wait = True

    def forget(self, client: C) -> None:
        """Forget a client that has disconnected."""
        self._waiting.pop(client, None)
        self.count(client, 0)

    def count(self, client: C, size: int) -> None:
        """Set the bytes that the client's unread replies hold. May close clients, also this one."""
        if not self._bytes_max:
            return
        was_used_up = self.is_used_up
        self._bytes += size - self._sizes.pop(client, 0)
        if size:
            self._sizes[client] = size
        if self._closing:
            # `_close_until_free` checks the sum itself.
            return
        if self._bytes > 2 * self._bytes_max:
            self._close_until_free(self._least_recent(newest=False))
        if not self.is_used_up:
            self._release()
            return
        if not was_used_up:
            self._used_up_since = self._loop.time()
        if self._timer is None:
            # Progress is noted from now on.
            self._timer = self._loop.call_later(0, self._look)

    def close_one(self, bytes_min: int) -> None:
        """Close the client that has not read for longest, of those that hold `bytes_min`."""
        clients = [client for client in self._least_recent() if self._sizes[client] >= bytes_min]
        if clients:
            self._close(clients[0])

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _release(self) -> None:
        """Run deferred commands."""
        if self._others_wait:
            self._others_wait = False
            self._on_room()
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for client in waiting:
            client.finished()

    def _look(self) -> None:
        if self.is_used_up:
            now = self._loop.time()
            unread = [client for client in self._sizes if client.unread_bytes]
            for client in unread:
                client.note_progress(now)
            idle = [client for client in unread if now - client.read_at >= PATIENCE_SECONDS]
            # Closing the largest first closes the fewest clients.
            idle.sort(key=self._sizes.__getitem__, reverse=True)
            self._close_until_free(idle)
            starved = now - self._used_up_since >= STARVED_SECONDS
            if starved and (self._waiting or self._others_wait):
                left = [client for client in unread if client in self._sizes]
                self._close_until_free([max(left, key=self._sizes.__getitem__)] if left else [])
        # Set while the above runs, so that `count` starts no second timer.
        self._timer = None
        if self.is_used_up:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _least_recent(self, *, newest: bool = True) -> list[C]:
        """Return the counted clients in the order in which they are closed, those that have read
        nothing for longest first. Without `newest`, the last one is omitted: a single reply may be
        larger than the bound.
        """
        clients = sorted(self._sizes, key=lambda client: (not client.unread_bytes, client.read_at))
        return clients if newest else clients[:-1]

    def _close_until_free(self, clients: list[C]) -> None:
        was_used_up = self.is_used_up
        self._closing = True
        try:
            for client in clients:
                if not self.is_used_up:
                    break
                self._close(client)
        finally:
            self._closing = False
        if was_used_up and not self.is_used_up:
            self._release()
