"""Hands the replies of one client to its transport, piece by piece.

A transport keeps a whole bytes object until its last byte is sent, and over TLS it neither reports
nor limits the size of its buffer. So it gets at most `PIECE_BYTES` at once and nothing while it is
paused. The rest is kept and counted here, and released as the client reads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

PIECE_BYTES: Final = 64 << 10
BUFFER_BYTES: Final = 16 << 10
"""A transport with more unsent bytes is paused. The limit is small, because fewer bytes are counted
nowhere and a broker may have 10,000 clients.
"""
PAUSED_BYTES: Final = 2 * PIECE_BYTES
"""Counted for a paused transport: the pieces that it may hold."""
_TRIMMED_BYTES_MIN: Final = 4 * PIECE_BYTES


class ReplyWriter:
    """The replies of one connection."""

    def __init__(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(BUFFER_BYTES)
        self._transport = transport
        self._rest: deque[bytes] = deque()
        self._sent = 0
        """Number of bytes of `_rest[0]` that the transport has taken."""
        self._size = 0
        self.paused = False

    @property
    def unread_bytes(self) -> int:
        """Bytes in memory of replies that the client does not read; 0 while it reads."""
        return self._size + PAUSED_BYTES if self.paused else 0

    @property
    def idle(self) -> bool:
        """Whether the transport has taken everything."""
        return not self._rest

    def write(self, data: bytes) -> None:
        """Send `data` after all unsent bytes."""
        if not (self._rest or self.paused) and len(data) <= PIECE_BYTES:
            self._transport.write(data)
            return
        self._rest.append(data)
        self._size += len(data)
        self._send()

    def pause(self) -> None:
        """Stop sending: the transport is full."""
        self.paused = True

    def resume(self) -> None:
        """Continue sending: the transport has room. It may be full again on return."""
        self.paused = False
        self._send()

    def clear(self) -> None:
        """Drop all unsent bytes."""
        self._rest.clear()
        self._size = self._sent = 0

    def _send(self) -> None:
        rest, transport = self._rest, self._transport
        while rest and not self.paused:
            if transport.is_closing():
                self.clear()
                return
            first = rest[0]
            piece = first[self._sent : self._sent + PIECE_BYTES]
            self._sent += len(piece)
            if self._sent == len(first):
                rest.popleft()
                self._size -= len(first)
                self._sent = 0
            transport.write(piece)
        # Trimming only when half is sent copies each byte once on average.
        if self._sent >= _TRIMMED_BYTES_MIN and self._sent * 2 >= len(rest[0]):
            rest[0] = rest[0][self._sent :]
            self._size -= self._sent
            self._sent = 0
