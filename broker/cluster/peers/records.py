"""Records: the framing of an authenticated connection. A record is used only if its tag matches.

    0 size u32 of what is carried | 4 carried: whole messages (wire.py), or nothing, a ping | tag

    tag, 16 bytes = the beginning of HMAC-SHA256(key of the direction, number + size + carried)

Records of a direction are numbered from 0; the number, u64, is not sent. A record that is left out,
repeated, reordered, altered or taken from another connection has a wrong tag, and so have all after
it. Little-endian. Both classes are pure: blocks in, blocks out.
"""

from __future__ import annotations

import hmac
import struct
from typing import Final

from delaylog.broker.cluster.peers.limits import GROWTH_BYTES, RECEIVE_BYTES, RECORD_BYTES_MAX
from delaylog.replication.errors import PeerError
from delaylog.storage.messages.batch import Block

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


class RecordWriter:
    """Makes records: `begin`, `cover` each block, `end`; the results and the blocks are sent."""

    def __init__(self, key: bytes) -> None:
        self._tags = _Tags(key)

    def begin(self, size: int) -> bytes:
        """The head of a record that carries `size` bytes."""
        assert size <= RECORD_BYTES_MAX
        self._tags.begin(size)
        return SIZE.pack(size)

    def cover(self, block: Block) -> None:
        """Add a block that is sent."""
        self._tags.cover(block)

    def end(self) -> bytes:
        """The tag."""
        return self._tags.tag()

    def seal(self, blocks: list[Block]) -> list[Block]:
        """The blocks of a whole record."""
        head = self.begin(sum(map(len, blocks)))
        for block in blocks:
            self._tags.cover(block)
        return [head, *blocks, self._tags.tag()]


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
