"""Listens for Redis clients over TLS, and counts them from the moment they are accepted.

An asyncio server tells of a TLS connection once its handshake is over. Until then it would be in no
count, so idle sockets could take every descriptor.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

from delaylog.broker.accepting import accept_all

HANDSHAKE_SECONDS: Final = 5.0

log = logging.getLogger("delaylog.resp")


class TlsListener:
    """The sockets of one address, and the connections that are not clients yet."""

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        make: Callable[[], asyncio.Protocol],
        is_full: Callable[[], bool],
    ) -> None:
        """`make` is called for each connection; `is_full` says whether it would be too many."""
        self._context = context
        self._make = make
        self._is_full = is_full
        self._listening: list[tuple[socket.socket, asyncio.Task[None]]] = []
        self._handshakes: set[asyncio.Task[None]] = set()

    @property
    def handshakes(self) -> int:
        """Connections that are accepted and not made yet."""
        return len(self._handshakes)

    async def start(self, host: str, port: int, backlog: int) -> int:
        """Listen; returns the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, *_, address in dict.fromkeys(found):
            # All addresses of a name have one port.
            listener = socket.create_server((address[0], port), family=family, backlog=backlog)
            listener.setblocking(False)
            port = listener.getsockname()[1]
            task = loop.create_task(accept_all(listener, self._took, self._note))
            self._listening.append((listener, task))
        return port

    def close(self) -> None:
        """Take no new connections, and end those that are not clients yet."""
        for listener, task in self._listening:
            task.cancel()
            listener.close()
        for handshake in self._handshakes:
            handshake.cancel()

    def _note(self, error: OSError) -> None:
        log.warning("cannot accept a Redis client: %s", error)

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
