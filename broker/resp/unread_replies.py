"""Replies that clients have not read yet: bounded for all clients, counted and written for each.

A reply is first in `session.out`, then waits for the log, and is then unread until the client reads
it. `ReplyCount` counts its bytes meanwhile.

The reply bytes that clients leave unread are bounded to a quarter of `resp-maxmemory`. A short
command can ask for a large reply, and the client decides when to read it. While unread replies use
up the bound, large replies of commands that only read are deferred; small replies and writes go on.
Clients that read nothing for `PATIENCE_SECONDS` are closed, largest first. Replies that cannot be
deferred (writes, scripts, published messages) may use up the bound once more: beyond that, clients
are closed at once.

`ReplyWriter` hands replies to the transport piece by piece. A transport keeps a whole bytes object
until its last byte is sent, and over TLS it neither reports nor limits the size of its buffer. So
it gets at most `PIECE_BYTES` at once and nothing while it is paused. The rest is kept and counted
here, and released as the client reads.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections import deque
from collections.abc import Callable
from typing import Final

from delaylog.broker.keyspace.running.session import Session

# --------------------------------------------------------------------- the bound of all clients

SHARE: Final = 4
"""Unread replies may take one quarter of `resp-maxmemory`."""
PATIENCE_SECONDS: Final = 0.5
"""A client may read nothing for this time, which covers a lost packet, before it is closed."""
STARVED_SECONDS: Final = 5.0
"""While replies are deferred for this time without a break, the largest unread reply is closed even
if its client reads: clients that read a few bytes a second must not use up the bound for hours.
"""
LOOK_SECONDS: Final = 0.1


class ReplyBound:
    """The bound of one process. All methods belong to the loop's thread."""

    def __init__(
        self,
        maxmemory: int,
        loop: asyncio.AbstractEventLoop,
        *,
        close: Callable[[ReplyCount], None],
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
        self._sizes: dict[ReplyCount, int] = {}
        """Clients with counted replies."""
        self._waiting: dict[ReplyCount, None] = {}
        self._others_wait = False
        """Replies of blocked commands are deferred; `on_room` creates them."""
        self._used_up_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False

    @property
    def is_used_up(self) -> bool:
        """Whether large replies of commands that only read are deferred."""
        return self._bytes > self._bytes_max > 0

    def wait(self, client: ReplyCount) -> None:
        """Call `client.finished()` when replies have room."""
        self._waiting[client] = None

    def wait_for_room(self) -> None:
        """Call `on_room` when replies have room."""
        self._others_wait = True

    def forget(self, client: ReplyCount) -> None:
        """Forget a client that has disconnected."""
        self._waiting.pop(client, None)
        self.count(client, 0)

    def count(self, client: ReplyCount, size: int) -> None:
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

    def _least_recent(self, *, newest: bool = True) -> list[ReplyCount]:
        """Return the counted clients in the order in which they are closed, those that have read
        nothing for longest first. Without `newest`, the last one is omitted: a single reply may be
        larger than the bound.
        """
        clients = sorted(self._sizes, key=lambda client: (not client.unread_bytes, client.read_at))
        return clients if newest else clients[:-1]

    def _close_until_free(self, clients: list[ReplyCount]) -> None:
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


# -------------------------------------------------------------------------------------- writing

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


# ---------------------------------------------------------------------- the bytes of one client

COUNTED_BYTES_MIN: Final = 64 << 10
"""Fewer bytes that wait for the log are not counted, so most commands count nothing."""


class ReplyCount:
    """The replies of one connection."""

    def __init__(
        self,
        session: Session,
        writer: ReplyWriter,
        bound: ReplyBound,
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
