"""Connections whose reading is paused, and whether their clients have reset or ended them.

A transport that does not read does not notice that its client is gone: a long poll would go on, and
lease the next message to nobody. epoll reports a reset of every descriptor that it has, whatever
else is asked for, and the end of what a client sends on request. So each carrier registers the
connections that it does not read, and only those.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections.abc import Callable
from typing import Final

_HAS_EPOLL: Final = hasattr(select, "epoll")
"""Only Linux has it. Elsewhere such a client is noticed by the next read or write."""


class Resets:
    """Pauses the reading of one carrier's connections, and aborts those that are reset then."""

    def __init__(self) -> None:
        self._epoll: select.epoll | None = None
        """Made for the first connection that is paused."""
        self._paused: dict[object, int] = {}
        """Descriptors by connection."""
        self._transports: dict[int, asyncio.Transport] = {}
        self._on_end: dict[int, Callable[[], object]] = {}

    def pause(
        self,
        connection: object,
        transport: asyncio.Transport,
        on_end: Callable[[], object] | None = None,
    ) -> None:
        """Stop reading from a connection, which may be paused already.

        `on_end` is called if the client has ended or then ends what it sends.
        """
        transport.pause_reading()
        socket = transport.get_extra_info("socket")
        fd = -1 if socket is None else socket.fileno()
        if not _HAS_EPOLL or fd < 0:
            return
        if self._epoll is None:
            self._epoll = select.epoll()
            asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._look)
        if connection not in self._paused:
            self._epoll.register(fd, 0)
            self._paused[connection] = fd
            self._transports[fd] = transport
        if on_end is not None:
            self._on_end[fd] = on_end
            self._epoll.modify(fd, select.EPOLLRDHUP)

    def forget(self, connection: object) -> None:
        """The connection is read again, or is lost."""
        fd = self._paused.pop(connection, None)
        if fd is not None and self._epoll is not None:
            del self._transports[fd]
            self._on_end.pop(fd, None)
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def close(self) -> None:
        """No connection is left."""
        if self._epoll is not None:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _look(self) -> None:
        assert self._epoll is not None, "the loop reads what is open"
        for fd, events in self._epoll.poll(0):
            if events == select.EPOLLRDHUP:
                self._epoll.modify(fd, 0)
                self._on_end.pop(fd)()
            else:
                self._epoll.unregister(fd)
                self._transports[fd].abort()
