"""Accepts connections one by one, so that they are counted before their TLS handshake."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

_PAUSE_S: Final = 0.05
"""Pause after a failed accept, for example when no file descriptor is free."""


async def accept_all(
    listener: socket.socket,
    took: Callable[[socket.socket], None],
    note: Callable[[OSError], None],
) -> None:
    """Accept connections until the task is cancelled; `note` is called with each error."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            sock, _ = await loop.sock_accept(listener)
        except OSError as error:
            note(error)
            await asyncio.sleep(_PAUSE_S)
            continue
        took(sock)
