"""Listens for Redis clients over TLS and counts them from the moment they are accepted.

asyncio reports a TLS connection only after its handshake. Without this listener, sockets that never
start one would be counted nowhere and could use up every descriptor.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from delaylog.broker.host.accepting import accept_all
from delaylog.broker.host.watch.quiet_log import QuietLog

HANDSHAKE_SECONDS: Final = 5.0
"""A connection whose handshake takes longer is closed."""
_NOT_HERE: Final = frozenset((errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL))
"""Errors for an address of a family that the kernel does not have, or that is disabled."""

log = logging.getLogger("delaylog.resp")


class TlsListener:
    """The sockets of one host name, and the connections that are in their handshake."""

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        make: Callable[[], asyncio.Protocol],
        is_full: Callable[[], bool],
    ) -> None:
        """`make` creates the protocol after a handshake; `is_full` refuses a new connection."""
        self._context = context
        self._make = make
        self._is_full = is_full
        self._listening: list[tuple[socket.socket, asyncio.Task[None]]] = []
        self._handshakes: set[asyncio.Task[None]] = set()
        self._log = QuietLog(log)

    @property
    def handshakes(self) -> int:
        """The number of connections that are in their handshake."""
        return len(self._handshakes)

    async def start(self, host: str, port: int, backlog: int) -> int:
        """Listen on all addresses of `host`; returns their common port. Raises OSError.

        Addresses of a family that this machine does not have are skipped, unless all are.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for listener in _bind_all(dict.fromkeys(found), port, backlog):
            listener.setblocking(False)
            port = listener.getsockname()[1]
            task = loop.create_task(accept_all(listener, self._took, self._note))
            self._listening.append((listener, task))
        return port

    def close(self) -> None:
        """Stop accepting and close the connections that are in their handshake."""
        for listener, task in self._listening:
            task.cancel()
            listener.close()
        for handshake in self._handshakes:
            handshake.cancel()

    def _note(self, error: OSError) -> None:
        self._log.tell("accept", "cannot accept a Redis client: %s", error)

    def _took(self, sock: socket.socket) -> None:
        if self._is_full():
            sock.close()
            return
        task = asyncio.get_running_loop().create_task(self._shake_hands(sock))
        self._handshakes.add(task)
        task.add_done_callback(partial(self._shaken, sock))

    async def _shake_hands(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(
            self._make, sock, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_SECONDS
        )

    def _shaken(self, sock: socket.socket, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        if task.cancelled():
            sock.close()
        elif (error := task.exception()) is not None:
            sock.close()
            if not isinstance(error, OSError):
                raise error


def _bind_all(found: Iterable[tuple[Any, ...]], port: int, backlog: int) -> list[socket.socket]:
    """Bind a socket to each address of `getaddrinfo`, all to one port. Raises OSError."""
    sockets: list[socket.socket] = []
    skipped: OSError | None = None
    try:
        for family, *_, (host, _, *scope) in found:
            # The rest of an IPv6 address holds the interface of a link-local one.
            address = (host, port, *scope)
            try:
                sockets.append(socket.create_server(address, family=family, backlog=backlog))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                skipped = error
                continue
            port = sockets[-1].getsockname()[1]
        if skipped is not None and not sockets:
            raise skipped
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets
