"""Records: the framing of an authenticated connection, its limits and its send queue.

    0 size u32 of what is carried | 4 carried: whole messages (wire.py), or nothing, a ping | tag

    tag, 16 bytes = the beginning of HMAC-SHA256(key of the direction, number + size + carried)

A record is used only if its tag matches. Records of a direction are numbered from 0; the number,
u64, is not sent. A record that is left out, repeated, reordered, altered or taken from another
connection has a wrong tag, and so have all after it. Little-endian.

The send queue takes messages and gives blocks of records, in order. Messages of one turn share
records. A long record is handed out in slices over several turns of the loop, since authenticating
it at once would block the loop. All classes are pure: blocks in, blocks out.
"""

from __future__ import annotations

import hmac
import struct
from collections import deque
from dataclasses import dataclass
from typing import Final

from delaylog.replication.errors import PeerError
from delaylog.replication.messages import Message
from delaylog.replication.wire import HEADER_SIZE, LAYOUTS, encode
from delaylog.storage.messages.batch import Block

# ------------------------------------------------------------------------ limits of connections

RECORD_BYTES_MAX: Final = HEADER_SIZE + max(layout.size_max for layout in LAYOUTS)
"""Most bytes that one record carries: the largest message fits."""
RECORD_BYTES_GOAL: Final = 1 << 20
"""Most bytes of several messages in one record. A record is used only once it is complete, so in a
longer one the first message would wait for the last."""
SLICE_BYTES: Final = 1 << 20
"""Bytes authenticated at once: about 1 ms, so that a long message does not block the loop."""
TURN_BYTES: Final = 1 << 20
"""Bytes handed to one socket in one turn of the loop; the rest follows in the next turn."""
RECEIVE_BYTES: Final = 64 << 10
"""Bytes read at once: a thousand small records, some milliseconds of work. A longer record gets its
own buffer, which grows with the bytes that arrive."""
GROWTH_BYTES: Final = 4 << 20
"""Growth of that buffer: a length that is not authenticated yet must not allocate its memory."""
JOIN_BYTES_MAX: Final = 64 << 10
"""Blocks below this are joined before they are written; longer ones are written uncopied."""

assert SLICE_BYTES <= RECORD_BYTES_GOAL <= TURN_BYTES < RECORD_BYTES_MAX < 1 << 32


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """Milliseconds and bytes; tests use other values, for which the relations below must hold."""

    ping_ms: int = 150
    """After sending nothing for this long, a node sends an empty record as a ping."""
    silent_ms: int = 500
    """A peer that sent no byte for this long is dead: three pings are missing. On a busy machine it
    may be longer (replication/oracle.py)."""
    look_ms: int = 50
    """Interval of the checks of both."""
    stranger_ms: int = 1_000
    """Deadline of the handshake."""
    strangers_max: int = 32
    """Most connections that are not authenticated yet. One more closes the oldest: a member needs
    two round trips only, so a flood of idle connections cannot keep it out."""
    redial_min_ms: int = 20
    redial_max_ms: int = 200
    """A lost peer is dialled again after a random time, whose bound grows from min to max."""
    refusals_quick: int = 5
    """After more refusals in a row the pauses double, to `refused_max_ms`: such a cause lasts, as
    another release or another secret. An ended process refuses nobody, so its return is awaited at
    the pace above."""
    refused_max_ms: int = 5_000
    settled_ms: int = 1_000
    """A connection that a peer ends earlier counts as refused."""
    stop_ms: int = 250
    """How long `stop` waits for sent bytes to drain."""
    outgoing_bytes_max: int = 64 << 20
    """Most bytes that wait for a slow peer: above it the connection is closed, and replication
    ships the lost frames again. One message alone may be longer."""

    def __post_init__(self) -> None:
        assert self.look_ms <= self.ping_ms, "pings are sent when it is looked"
        assert 2 * self.ping_ms + self.look_ms < self.silent_ms, "one ping may be late"
        assert 0 < self.redial_min_ms <= self.redial_max_ms
        assert self.redial_max_ms <= self.refused_max_ms
        assert self.strangers_max > 0


# -------------------------------------------------------------------------------------- records

SIZE: Final = struct.Struct("<I")
SIZE_SIZE: Final = 4
assert SIZE.size == SIZE_SIZE
TAG_SIZE: Final = 16
OVERHEAD: Final = SIZE_SIZE + TAG_SIZE
_COVERED: Final = struct.Struct("<QI")


class RecordError(PeerError):
    """A record is not the peer's next one. Close the connection."""


class _Tags:
    """The tags of one direction, in order."""

    def __init__(self, key: bytes) -> None:
        self._base = hmac.new(key, digestmod="sha256")
        self._number = 0
        self._running = self._base

    def begin(self, size: int) -> None:
        """The next record carries `size` bytes."""
        self._running = self._base.copy()
        self._running.update(_COVERED.pack(self._number, size))
        self._number += 1

    def cover(self, block: Block) -> None:
        """Add the record's next bytes."""
        self._running.update(block)

    def tag(self) -> bytes:
        """The tag of the record."""
        return self._running.digest()[:TAG_SIZE]


class RecordWriter(_Tags):
    """Makes records: `head`, `cover` each block, `tag`; the results and the blocks are sent."""

    def head(self, size: int) -> bytes:
        """The head of a record that carries `size` bytes."""
        assert size <= RECORD_BYTES_MAX
        self.begin(size)
        return SIZE.pack(size)

    def seal(self, blocks: list[Block]) -> list[Block]:
        """The blocks of a whole record."""
        head = self.head(sum(map(len, blocks)))
        for block in blocks:
            self.cover(block)
        return [head, *blocks, self.tag()]


class RecordReader:
    """Reads records. Fill `space`, report the size to `filled`, then call `record` until None.

    `record` returns a view of the buffer: release it before the next call.
    """

    def __init__(self, key: bytes, size_max: int) -> None:
        self.size_max = size_max
        """Longer records are refused; small until HELLO has come."""
        self._tags = _Tags(key)
        self._buffer = bytearray(RECEIVE_BYTES)
        self._start = 0
        self._end = 0
        self._long: bytearray | None = None
        """The bytes of a record that does not fit the buffer, without its head; it grows."""
        self._long_size = 0
        self._long_end = 0

    @property
    def inside(self) -> bool:
        """Whether a record has begun and is not complete."""
        return self._long is not None or self._end > self._start

    def space(self) -> memoryview:
        """The buffer for received bytes; never empty."""
        long = self._long
        if long is None:
            return memoryview(self._buffer)[self._end :]
        if self._long_end == len(long):
            long += bytes(min(GROWTH_BYTES, self._long_size + TAG_SIZE - len(long)))
        return memoryview(long)[self._long_end :]

    def filled(self, count: int) -> None:
        """`count` bytes were written to `space`."""
        if self._long is None:
            self._end += count
        else:
            self._take_long(count)

    def record(self) -> memoryview | None:
        """The bytes of the next record; None until it is complete. Raises RecordError."""
        if self._long is not None:
            return self._finish_long()
        buffered = self._end - self._start
        if buffered >= SIZE_SIZE:
            (size,) = SIZE.unpack_from(self._buffer, self._start)
            if size > self.size_max:
                text = f"a record of {size} bytes where {self.size_max} are allowed"
                raise RecordError(text)
            if buffered >= OVERHEAD + size:
                return self._next(size)
            if OVERHEAD + size > len(self._buffer):
                self._begin_long(size)
                return None
        self._tidy()
        return None

    def _next(self, size: int) -> memoryview:
        first = self._start + SIZE_SIZE
        carried = memoryview(self._buffer)[first : first + size]
        self._tags.begin(size)
        self._tags.cover(carried)
        self._start = first + size + TAG_SIZE
        self._check(bytes(self._buffer[first + size : self._start]))
        return carried

    def _tidy(self) -> None:
        """Move an incomplete record to the front of the buffer when the buffer is nearly full."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start > len(self._buffer) // 2 or self._end == len(self._buffer):
            size = self._end - self._start
            self._buffer[:size] = self._buffer[self._start : self._end]
            self._start, self._end = 0, size

    def _begin_long(self, size: int) -> None:
        first = self._start + SIZE_SIZE
        self._tags.begin(size)
        self._long = self._buffer[first : self._end]
        self._long_size = size
        self._long_end = 0
        self._start = self._end = 0
        self._take_long(len(self._long))

    def _take_long(self, count: int) -> None:
        assert self._long is not None
        first, self._long_end = self._long_end, self._long_end + count
        with memoryview(self._long)[first : min(self._long_end, self._long_size)] as view:
            self._tags.cover(view)

    def _finish_long(self) -> memoryview | None:
        assert self._long is not None
        if self._long_end < self._long_size + TAG_SIZE:
            return None
        long, self._long = self._long, None
        self._check(bytes(long[self._long_size :]))
        return memoryview(long)[: self._long_size]

    def _check(self, tag: bytes) -> None:
        if not hmac.compare_digest(tag, self._tags.tag()):
            raise RecordError("a record was altered, repeated or reordered")


# ------------------------------------------------------------------------------- the send queue


class Outgoing:
    """Waiting messages of one connection, and the record that is partly handed out."""

    def __init__(self, writer: RecordWriter) -> None:
        self._writer = writer
        self._messages: deque[list[Block]] = deque()
        self._rest: deque[Block] = deque()
        """Blocks of the open record that are not authenticated yet."""
        self._open = False
        self.bytes_waiting = 0
        """Bytes of messages that are not handed out yet."""

    def add(self, message: Message) -> None:
        """Queue a message."""
        blocks = encode(message)
        self._messages.append(blocks)
        self.bytes_waiting += sum(map(len, blocks))

    def take(self, bytes_max: int) -> list[Block]:
        """Blocks to write now: records up to about so many bytes. Empty when nothing waits."""
        out: list[Block] = []
        taken = 0
        while taken < bytes_max and (self._open or self._messages):
            if not self._open:
                out.append(self._begin())
            taken += self._cover(out, bytes_max - taken)
        self.bytes_waiting -= taken
        return _joined(out)

    def ping(self) -> Block:
        """An empty record; no record may be open."""
        assert not self._open
        return b"".join(self._writer.seal([]))

    def _begin(self) -> bytes:
        """Start a record with the waiting messages, up to `RECORD_BYTES_GOAL`."""
        size = 0
        while self._messages and size < RECORD_BYTES_GOAL:
            more = sum(map(len, self._messages[0]))
            if size and size + more > RECORD_BYTES_GOAL:
                break
            self._rest += self._messages.popleft()
            size += more
        self._open = True
        return self._writer.head(size)

    def _cover(self, out: list[Block], bytes_max: int) -> int:
        """Hand out at least one block or slice of the open record; at its end, the tag."""
        taken = 0
        while self._rest and taken < bytes_max:
            block = self._rest.popleft()
            if len(block) > SLICE_BYTES:
                view = memoryview(block)
                self._rest.appendleft(view[SLICE_BYTES:])
                block = view[:SLICE_BYTES]
            self._writer.cover(block)
            out.append(block)
            taken += len(block)
        if not self._rest:
            self._open = False
            out.append(self._writer.tag())
        return taken


def _joined(blocks: list[Block]) -> list[Block]:
    """The same bytes in fewer blocks: short blocks are joined, long ones are not copied."""
    out: list[Block] = []
    small: list[Block] = []
    for block in blocks:
        if len(block) < JOIN_BYTES_MAX:
            small.append(block)
            continue
        if small:
            out.append(b"".join(small))
            small = []
        out.append(block)
    if small:
        out.append(small[0] if len(small) == 1 else b"".join(small))
    return out
