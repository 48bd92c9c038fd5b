"""What is to be sent: order, few records, long ones in slices, and honest counting.

Method: take in turns of all sizes, read back with a RecordReader.
"""

from __future__ import annotations

from delaylog.broker.cluster.peers.records import (
    RECORD_BYTES_GOAL,
    SLICE_BYTES,
    TURN_BYTES,
    Outgoing,
    RecordReader,
    RecordWriter,
)
from delaylog.replication.epochs import EpochTick
from delaylog.replication.messages import Ack, Append, Message
from delaylog.replication.wire import Decoder
from tests.broker.cluster.peers.test_records import read

KEY = bytes(32)


def append(size: int, seq: int = 0) -> Append:
    return Append(1, 2, 3, 4, seq, EpochTick(), bytes([seq]) * size)


def test_one_record_a_turn() -> None:
    """What was added together travels together, joined into one block."""
    outgoing = Outgoing(RecordWriter(KEY))
    messages: list[Message] = [Ack(1, n, n, True) for n in range(50)]
    for message in messages:
        outgoing.add(message)
    (block,) = outgoing.take(TURN_BYTES)
    (record,) = read(RecordReader(KEY, 1 << 20), bytes(block))
    assert Decoder().feed(record) == messages
    assert outgoing.bytes_waiting == 0
    assert outgoing.take(TURN_BYTES) == []


def test_long_ones_are_not_copied() -> None:
    """The frames of an APPEND are the very bytes that were handed in, in slices."""
    outgoing = Outgoing(RecordWriter(KEY))
    message = append(3 * SLICE_BYTES)
    outgoing.add(message)
    views = [b for b in outgoing.take(4 * SLICE_BYTES) if isinstance(b, memoryview)]
    assert [len(view) for view in views] == [SLICE_BYTES] * 3
    assert all(view.obj is message.data for view in views)


def test_order_and_turns() -> None:
    """Small and large mixed, taken in small turns: every message, in order, in whole records."""
    sizes = [0, 10, RECORD_BYTES_GOAL, 5, 3 * RECORD_BYTES_GOAL + 1, 0, 700_000, 700_000, 1]
    messages: list[Message] = [append(size, n) for n, size in enumerate(sizes)]
    for turn in (1, 100_000, 1 << 20, 1 << 30):
        outgoing = Outgoing(RecordWriter(KEY))
        for message in messages:
            outgoing.add(message)
        reader = RecordReader(KEY, 1 << 28)
        found: list[Message] = []
        records = 0
        before = outgoing.bytes_waiting
        while blocks := outgoing.take(turn):
            assert 0 <= outgoing.bytes_waiting < before
            before = outgoing.bytes_waiting
            for record in read(reader, b"".join(blocks)):
                decoder = Decoder()
                found += decoder.feed(record)
                decoder.finish()
                records += 1
        assert found == messages
        assert outgoing.bytes_waiting == 0
        assert not reader.inside
        assert records == 6


def test_ping() -> None:
    """An empty record, in its place."""
    outgoing = Outgoing(RecordWriter(KEY))
    outgoing.add(Ack(1, 2, 3, True))
    data = b"".join([*outgoing.take(TURN_BYTES), outgoing.ping(), outgoing.ping()])
    assert [len(record) for record in read(RecordReader(KEY, 100), data)] == [33, 0, 0]
