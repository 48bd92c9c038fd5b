"""Counts the reply bytes of one client, for the bound that all clients share.

A reply is first in `session.out`, then waits for the log, and is then unread until the client reads
it.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable
from typing import Final

from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.resp.reply_bound import ReplyBound
from delaylog.broker.resp.reply_writer import ReplyWriter

COUNTED_BYTES_MIN: Final = 64 << 10
"""Fewer bytes that wait for the log are not counted, so most commands count nothing."""


class ReplyCount:
    """The replies of one connection."""

    def __init__(
        self,
        session: Session,
        writer: ReplyWriter,
        bound: ReplyBound[ReplyCount],
        loop: asyncio.AbstractEventLoop,
        on_room: Callable[[], None],
    ) -> None:
        """`on_room` runs commands again whose replies were deferred."""
        self.session = session
        self._writer = writer
        self._bound = bound
        self._loop = loop
        self.finished = on_room
        self.read_at = 0.0
        """Loop time at which the client last read, or at which its oldest unread reply was written.
        """
        self.waiting_bytes = 0
        """Bytes of replies that wait for the log."""
        self._out_bytes = self._out_count = 0
        """Bytes of the first `_out_count` pieces of `session.out`."""
        self.counted_bytes = 0
        """Bytes of replies that the bound counts for this client."""
        self._queued = -1
        """Bytes in the socket's own buffer when progress was last noted, or -1."""

    @property
    def unread_bytes(self) -> int:
        """Bytes that were written and that the client does not read."""
        return self._writer.unread_bytes

    def owed_bytes(self) -> int:
        """Return the bytes of replies that are not written yet."""
        out, seen = self.session.out, self._out_count
        if len(out) != seen:
            if len(out) < seen:
                self._out_bytes = seen = 0
            self._out_bytes += sum(map(len, out[seen:] if seen else out))
            self._out_count = len(out)
        return self.waiting_bytes + self._out_bytes

    def note_taken(self) -> int:
        """Note that `session.out` is taken, to wait for the log; returns its bytes."""
        # Counted anew: the place of a reply may have been empty when it was counted before.
        size = sum(map(len, self.session.out))
        self.waiting_bytes += size
        self._out_bytes = self._out_count = 0
        return size

    def note_written(self) -> None:
        """Note that replies were written to a client that had read everything."""
        self.read_at = self._loop.time()
        self._queued = -1

    def note_progress(self, now: float) -> None:
        """Set `read_at` if bytes have left the socket's own buffer since the last call.

        That buffer may hold megabytes, and the transport has room only when a third of it is free.
        So the first call, which cannot compare, counts as progress too.
        """
        before, self._queued = self._queued, _queued_bytes(self.session.descriptor)
        if before < 0 or self._queued < before:
            self.read_at = now

    def update(self) -> None:
        """Tell the bound how many bytes the client's replies hold."""
        owed = self.owed_bytes()
        if owed <= COUNTED_BYTES_MIN and not self.counted_bytes and not self._writer.paused:
            return
        size = self._writer.unread_bytes
        if size or owed > COUNTED_BYTES_MIN:
            size += owed
        if size != self.counted_bytes:
            if not self.counted_bytes:
                self.read_at = self._loop.time()
            self.counted_bytes = size
            self._bound.count(self, size)

    def drop(self) -> None:
        """Drop all replies, also those that the bound counts."""
        self._writer.clear()
        self.session.out.clear()
        self._out_bytes = self._out_count = self.counted_bytes = 0
        self._bound.forget(self)


def _queued_bytes(descriptor: int) -> int:
    """Return the bytes that a socket has not delivered to the other host."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))[0])
    except OSError:
        return 0
