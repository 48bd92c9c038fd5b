"""The send queue of one connection: messages in, blocks of authenticated records out, in order.

Messages of one turn share records. A long record is handed out in slices over several turns of the
loop, since authenticating it at once would block the loop. Pure.
"""

from __future__ import annotations

from collections import deque

from delaylog.broker.cluster.peers.limits import (
    JOIN_BYTES_MAX,
    RECORD_BYTES_GOAL,
    SLICE_BYTES,
)
from delaylog.broker.cluster.peers.records import RecordWriter
from delaylog.replication.messages import Message
from delaylog.replication.wire import encode
from delaylog.storage.messages.batch import Block


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
        return self._writer.begin(size)

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
            out.append(self._writer.end())
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
