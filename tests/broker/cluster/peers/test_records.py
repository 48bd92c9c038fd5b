"""Records: what goes in comes out, in order; whatever else arrives is refused.

Method: a writer and a reader in memory, bytes handed over in pieces of all sizes; every byte of a
small record altered; records repeated, left out, moved. What is to be sent is taken in turns of all
sizes, and read back: order, few records, long ones in slices, and honest counting.
"""

from __future__ import annotations

import hmac
import itertools
from random import Random

import pytest

from delaylog.broker.cluster.peers.records import (
    GROWTH_BYTES,
    OVERHEAD,
    RECEIVE_BYTES,
    RECORD_BYTES_GOAL,
    RECORD_BYTES_MAX,
    SLICE_BYTES,
    TURN_BYTES,
    Outgoing,
    PeerLimits,
    RecordError,
    RecordReader,
    RecordWriter,
)
from delaylog.replication.epochs import EpochTick
from delaylog.replication.messages import Ack, Append, Fetched, Message
from delaylog.replication.wire import FRAMES_BYTES_MAX, Decoder, encode

KEY = bytes(range(32))


def sealed(*contents: bytes) -> list[bytes]:
    """Records of one direction."""
    writer = RecordWriter(KEY)
    return [b"".join(writer.seal([content])) for content in contents]


def read(reader: RecordReader, data: bytes, piece: int = 1 << 30) -> list[bytes]:
    """What these bytes complete, handed over in pieces."""
    out = []
    at = 0
    while at < len(data):
        with reader.space() as space:
            size = min(piece, len(space), len(data) - at)
            assert size
            space[:size] = data[at : at + size]
        reader.filled(size)
        at += size
        while (carried := reader.record()) is not None:
            out.append(bytes(carried))
            carried.release()
    return out


def reader(size_max: int = RECORD_BYTES_MAX) -> RecordReader:
    return RecordReader(KEY, size_max)


def test_known_bytes() -> None:
    """A change of the layout is deliberate."""
    first, second = sealed(b"abc", b"")
    tag = hmac.new(KEY, bytes(8) + b"\3\0\0\0abc", "sha256").digest()[:16]
    assert first == b"\3\0\0\0abc" + tag
    tag = hmac.new(KEY, b"\1" + bytes(7) + bytes(4), "sha256").digest()[:16]
    assert second == bytes(4) + tag


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 19, 20, 21, 64, 1000, 1 << 20])
def test_small_ones_in_pieces(piece: int) -> None:
    """However TCP cuts them."""
    contents = [bytes([n]) * n for n in range(60)]
    assert read(reader(), b"".join(sealed(*contents)), piece) == contents


def test_sizes_around_the_buffer() -> None:
    """Records that just fit the buffer, just do not, and are much longer."""
    random = Random(1)
    edges = [RECEIVE_BYTES - OVERHEAD + more for more in (-1, 0, 1)]
    edges += [GROWTH_BYTES - 16 + more for more in (-1, 0, 1, 16, 17)]
    for order in (edges, edges[::-1], [*edges, 0, 5, *edges]):
        contents = [random.randbytes(size) for size in order]
        for piece in (70_001, RECEIVE_BYTES, 1 << 30):
            assert read(reader(), b"".join(sealed(*contents)), piece) == contents


def test_random_mixes() -> None:
    """Many sizes and cuts: no room is ever lost."""
    random = Random(2)
    sizes = [random.choice([0, 3, 900, 65_000, 200_000, 262_100, 300_000]) for _ in range(60)]
    contents = [random.randbytes(size) for size in sizes]
    data = b"".join(sealed(*contents))
    found = reader()
    out: list[bytes] = []
    at = 0
    while at < len(data):
        step = random.choice([1, 17, 4_000, 100_000, 1 << 20])
        out += read(found, data[at : at + step])
        at += step
    assert out == contents
    assert not found.inside


def test_altered_byte_at_each_position() -> None:
    """Whichever bit of a record is altered, nothing of it is taken."""
    (record,) = sealed(b"a message")
    for at, bit in itertools.product(range(len(record)), (1, 128)):
        bad = record[:at] + bytes([record[at] ^ bit]) + record[at + 1 :]
        found = reader(1000)
        try:
            assert read(found, bad) == []
        except RecordError:
            continue
        # Only a size that speaks of more than is there yet: with what follows it is refused.
        assert at < 4
        assert found.inside
        with pytest.raises(RecordError):
            read(found, bytes(1000))


def test_altered_byte_of_a_long_one() -> None:
    """What is covered piece by piece is covered wholly."""
    (record,) = sealed(bytes(RECEIVE_BYTES + 50))
    for at in (4, RECEIVE_BYTES - 1, RECEIVE_BYTES, len(record) - 17, len(record) - 16, -1):
        bad = bytearray(record)
        bad[at] ^= 1
        with pytest.raises(RecordError):
            read(reader(), bytes(bad), 10_000)


@pytest.mark.parametrize("order", [[0, 0], [1], [1, 0], [0, 2], [0, 1, 1], [0, 1, 0]])
def test_repeated_left_out_moved(order: list[int]) -> None:
    """Each record is good in its own place only, pings too."""
    for contents in ([b"one", b"two", b"three"], [b"", b"", b""]):
        records = sealed(*contents)
        with pytest.raises(RecordError):
            read(reader(), b"".join(records[n] for n in order))


def test_other_direction() -> None:
    """A record sent back to who sent it."""
    with pytest.raises(RecordError):
        read(RecordReader(bytes(32), 100), sealed(b"one")[0])


def test_injected_bytes() -> None:
    first, second = sealed(b"one", b"two")
    with pytest.raises(RecordError):
        read(reader(100), first + b"\0" + second)


def test_too_long() -> None:
    """Refused by its size alone, before any of it is there."""
    found = reader(10)
    assert read(found, sealed(b"x" * 10)[0]) == [b"x" * 10]
    with pytest.raises(RecordError, match="11 bytes where 10 are allowed"):
        read(found, b"\x0b\0\0\0")
    with pytest.raises(RecordError):
        read(reader(), b"\xff\xff\xff\xff")


def test_a_size_costs_no_memory() -> None:
    """A length that nobody has vouched for is no reason to make room for all of it."""
    found = reader()
    read(found, RECORD_BYTES_MAX.to_bytes(4, "little"))
    for _ in range(3):
        with found.space() as space:
            assert len(space) <= GROWTH_BYTES
            size = len(space)
        found.filled(size)
        assert found.record() is None
    assert found.inside


def test_inside() -> None:
    """Whether an end now would cut something off."""
    found = reader()
    (record,) = sealed(b"one")
    for at in range(len(record)):
        assert found.inside == (at > 0)
        read(found, record[at : at + 1])
    assert not found.inside


# --------------------------------------------------------------------------- bounds


def test_the_largest_message_fits() -> None:
    """Both kinds that carry frames."""
    frames = memoryview(bytearray(FRAMES_BYTES_MAX))
    for message in (Append(1, 2, 3, 4, 5, EpochTick(), frames), Fetched(1, 2, 3, frames)):
        assert sum(map(len, encode(message))) <= RECORD_BYTES_MAX


@pytest.mark.parametrize(
    "change",
    [
        {"ping_ms": 40},
        {"ping_ms": 250},
        {"silent_ms": 300},
        {"redial_min_ms": 300},
        {"redial_min_ms": 0},
        {"strangers_max": 0},
    ],
)
def test_contradictions(change: dict[str, int]) -> None:
    PeerLimits()
    with pytest.raises(AssertionError):
        PeerLimits(**change)


# --------------------------------------------------------------------------- what is to be sent


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
