"""Accepts connections one by one, so that they are counted before their TLS handshake."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

_PAUSE_S: Final = 0.05
"""Pause after a failed accept, for example when no file descriptor is free."""


class Acceptor:
    """Accepts the connections of one listening socket, one in a turn of the loop.

    `loop.sock_accept` is not used, since it loses a connection that comes in the turn of the loop
    in which it is cancelled.
    """

    def __init__(
        self,
        listener: socket.socket,
        took: Callable[[socket.socket], None],
        note: Callable[[OSError], None],
    ) -> None:
        """Begin to accept; `note` is called with each error. Closes `listener` at the end."""
        listener.setblocking(False)
        self._listener = listener
        self._took = took
        self._note = note
        self._loop = asyncio.get_running_loop()
        self._resuming: asyncio.TimerHandle | None = None
        self._resume()

    @property
    def port(self) -> int:
        """The port on which it listens."""
        port: int = self._listener.getsockname()[1]
        return port

    def close(self) -> None:
        """Stop accepting and close the listening socket."""
        if self._resuming is not None:
            self._resuming.cancel()
        else:
            self._loop.remove_reader(self._listener)
        self._listener.close()

    def _resume(self) -> None:
        self._resuming = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            self._loop.remove_reader(self._listener)
            self._resuming = self._loop.call_later(_PAUSE_S, self._resume)
            self._note(error)
            return
        sock.setblocking(False)
        self._took(sock)
