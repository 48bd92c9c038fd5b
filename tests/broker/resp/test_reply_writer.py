"""What a writer hands to its transport and what it keeps.

The transport is a toy that is full when the test says so, and calls back as real ones do.
"""

from __future__ import annotations

from typing import Any, cast

from delaylog.broker.resp.unread_replies import BUFFER_BYTES, PAUSED_BYTES, PIECE_BYTES, ReplyWriter


class ToyTransport:
    """Takes `room` bytes, then pauses its writer."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.limit = 0
        self.taken: list[bytes] = []
        self.closing = False
        self.writer: ReplyWriter

    def set_write_buffer_limits(self, high: int) -> None:
        self.limit = high

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        self.taken.append(data)
        self.room -= len(data)
        if self.room < 0:
            self.writer.pause()


def rig(room: int) -> tuple[ToyTransport, ReplyWriter]:
    """A transport with this room and its writer."""
    transport = ToyTransport(room)
    transport.writer = ReplyWriter(cast(Any, transport))
    return transport, transport.writer


def test_small_replies_go_straight_on() -> None:
    transport, writer = rig(1 << 20)
    assert transport.limit == BUFFER_BYTES
    writer.write(b"+OK\r\n")
    assert transport.taken == [b"+OK\r\n"]
    assert (writer.unread_bytes, writer.idle) == (0, True)


def test_a_large_reply_goes_in_pieces_and_is_released_as_it_is_read() -> None:
    reply = bytes(range(256)) * 4096 * 8
    transport, writer = rig(0)
    writer.write(reply)
    assert len(transport.taken) == 1
    assert writer.unread_bytes == len(reply) + PAUSED_BYTES
    # What comes behind it waits too, also if it is small.
    writer.write(b"+OK\r\n")
    held = [writer.unread_bytes]
    while writer.paused:
        transport.room = 3 * PIECE_BYTES
        writer.resume()
        held.append(writer.unread_bytes)
    assert max(map(len, transport.taken)) == PIECE_BYTES
    assert b"".join(transport.taken) == reply + b"+OK\r\n"
    assert writer.idle
    # What is kept is at most twice what is unsent.
    unsent = [max(len(reply) - 4 * PIECE_BYTES * turn, 0) for turn in range(len(held))]
    slack = PAUSED_BYTES + 8 * PIECE_BYTES
    for kept, left in zip(held, unsent, strict=True):
        assert kept <= 2 * left + slack


def test_a_transport_that_closes_gets_nothing_more() -> None:
    """uvloop logs each write to a connection that is lost."""
    transport, writer = rig(0)
    writer.write(b"x" * (1 << 20))
    transport.closing = True
    writer.resume()
    assert len(transport.taken) == 1
    assert writer.idle
    assert writer.unread_bytes == 0


def test_dropped_replies_count_nothing() -> None:
    transport, writer = rig(0)
    writer.write(b"x" * (1 << 20))
    writer.clear()
    assert writer.unread_bytes == PAUSED_BYTES
    writer.resume()
    assert len(transport.taken) == 1
