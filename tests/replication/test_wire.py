"""Messages and their bytes: pinned, round trips, and nothing but clear errors for anything else.

Method: known bytes of each kind; random messages under Hypothesis, cut into random pieces; bytes
that are cut short, garbled, too long or out of place.
"""

from __future__ import annotations

import struct
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.replication.epochs import EpochEntries, EpochTick, common_end
from delaylog.replication.errors import PeerError, WireError
from delaylog.replication.messages import (
    Ack,
    Append,
    Canvass,
    CopyEnd,
    CopyOffer,
    CopyPart,
    CopyTaken,
    Fetch,
    Fetched,
    FolderIdentity,
    Hello,
    Message,
    Nack,
    NodeStatus,
    Prepare,
    Promise,
    Readmit,
    Reject,
    Support,
    Takeover,
)
from delaylog.replication.wire import (
    EPOCHS_MAX,
    FRAMES_BYTES_MAX,
    HEADER,
    LAYOUTS,
    MAGIC,
    VERSION,
    Decoder,
    encode,
)
from delaylog.storage.messages.batch import Block

TICK = EpochTick(0x11, 0x22, 0x33, 0x44, -2)
TABLE = ((0x50001, 0), (0x60002, 100))
KNOWN: list[tuple[Message, str]] = [
    (
        Hello(b"0123456789abcdef", 3, True, 7, 9),
        "4452 01 01 23000000"
        + b"0123456789abcdef".hex()
        + "0300 01 0700000000000000 0900000000000000",
    ),
    (Prepare(0x50001), "4452 01 02 08000000 0100050000000000"),
    (
        Promise(0x50001, 9, TICK, TABLE),
        "4452 01 03 50000000 0100050000000000 0900000000000000"
        "1100000000000000 22000000 33000000 4400000000000000 feffffffffffffff"
        "0100050000000000 0000000000000000 0200060000000000 6400000000000000",
    ),
    (Nack(1, 2), "4452 01 04 10000000 0100000000000000 0200000000000000"),
    (
        Fetch(1, 2, TABLE[:1]),
        "4452 01 05 20000000 0100000000000000 0200000000000000 0100050000000000 0000000000000000",
    ),
    (
        Fetched(1, 2, 3, b"xy"),
        "4452 01 06 1a000000 0100000000000000 0200000000000000 0300000000000000 7879",
    ),
    (
        Append(1, 2, 3, 4, 5, TICK, b"z"),
        "4452 01 07 49000000 0100000000000000 0200000000000000 0300000000000000"
        "0400000000000000 0500000000000000"
        "1100000000000000 22000000 33000000 4400000000000000 feffffffffffffff 7a",
    ),
    (
        Ack(1, 2, 3, False),
        "4452 01 08 19000000 0100000000000000 0200000000000000 0300000000000000 00",
    ),
    (Reject(1, 2, True, ()), "4452 01 09 11000000 0100000000000000 0200000000000000 01"),
    (
        Takeover(1, 2, TICK),
        "4452 01 0a 30000000 0100000000000000 0200000000000000"
        "1100000000000000 22000000 33000000 4400000000000000 feffffffffffffff",
    ),
    (Readmit(1, 2), "4452 01 0b 10000000 0100000000000000 0200000000000000"),
    (CopyOffer(1, 2), "4452 01 0c 10000000 0100000000000000 0200000000000000"),
    (
        CopyTaken(1, 2, 3),
        "4452 01 0d 18000000 0100000000000000 0200000000000000 0300000000000000",
    ),
    (
        CopyPart(1, 2, 3, 4, "tick", b"xy"),
        "4452 01 0e 28000000 0100000000000000 0200000000000000 0300000000000000"
        "0400000000000000 0400 7469636b 7879",
    ),
    (CopyEnd(1, 2, True), "4452 01 0f 11000000 0100000000000000 0200000000000000 01"),
    (
        FolderIdentity(b"0123456789abcdef", 1, 2, b"fedcba9876543210", 3, 4, 5, 6, (7, 1)),
        "4452 01 10 60000000"
        + b"0123456789abcdef".hex()
        + "0100000000000000 0200000000000000"
        + b"fedcba9876543210".hex()
        + "0300000000000000 0400000000000000 0500000000000000 0600000000000000"
        + "0700000000000000 0100000000000000",
    ),
    (NodeStatus(b"\x80"), "4452 01 11 01000000 80"),
    (
        Canvass(1, 2, 3),
        "4452 01 12 18000000 0100000000000000 0200000000000000 0300000000000000",
    ),
    (Support(1, True), "4452 01 13 09000000 0100000000000000 01"),
]

u64 = st.integers(0, 2**64 - 1)
ticks = st.builds(
    EpochTick,
    u64,
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    u64,
    st.integers(-(2**63), 2**63 - 1),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    epochs = sorted(draw(st.sets(u64, max_size=5)))
    starts = sorted(draw(st.sets(u64, min_size=len(epochs), max_size=len(epochs))))
    return tuple(zip(epochs, starts, strict=True))


BY_TYPE: dict[object, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: u64,
    str: st.text(max_size=60),
    bytes: st.binary(min_size=16, max_size=16),
    Block: st.binary(max_size=300),
    EpochTick: ticks,
    EpochEntries: tables(),
    tuple[int, ...]: st.lists(u64, max_size=5).map(tuple),
}


def of_kind(kind: type[Message]) -> st.SearchStrategy[Message]:
    """Messages of one kind, by the types of its fields. A node has 16 bits."""
    fields = {name: BY_TYPE[type_] for name, type_ in get_type_hints(kind).items()}
    return st.builds(kind, **fields | ({"node": st.integers(0, 65_535)} if kind is Hello else {}))


messages = st.one_of(*(of_kind(type(message)) for message, _ in KNOWN))


def raw(message: Message) -> bytes:
    return b"".join(bytes(block) for block in encode(message))


@pytest.mark.parametrize(("message", "known"), KNOWN, ids=lambda value: type(value).__name__)
def test_known_bytes(message: Message, known: str) -> None:
    assert raw(message) == bytes.fromhex(known)
    assert Decoder().feed(raw(message)) == [message]


def test_every_kind_is_pinned() -> None:
    assert {type(message) for message, _ in KNOWN} == {layout.type for layout in LAYOUTS}


@given(st.lists(messages, max_size=6), st.data())
def test_round_trip_in_any_pieces(sent: list[Message], data: st.DataObject) -> None:
    stream = b"".join(raw(message) for message in sent)
    decoder, got, at = Decoder(), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        got += decoder.feed(stream[at : at + size])
        at += size
    decoder.finish()
    assert got == sent


@given(messages)
def test_cut_short_anywhere_is_an_error(message: Message) -> None:
    stream = raw(message)
    for size in range(1, len(stream)):
        decoder = Decoder()
        assert decoder.feed(stream[:size]) == []
        with pytest.raises(WireError, match="incomplete"):
            decoder.finish()


@given(st.binary(min_size=8, max_size=200))
def test_garbage_is_an_error_or_waits_for_more(data: bytes) -> None:
    try:
        Decoder().feed(data)
    except PeerError:
        return
    assert struct.unpack_from("<HB", data) == (MAGIC, VERSION)


@given(messages, st.data())
def test_one_wrong_byte_never_does_worse_than_an_error(
    message: Message, data: st.DataObject
) -> None:
    stream = bytearray(raw(message))
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] ^= data.draw(st.integers(1, 255))
    decoder = Decoder()
    try:
        decoder.feed(bytes(stream))
        decoder.finish()
    except WireError:
        pass


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ((0x1234, VERSION, 2, 8), "begins with 0x1234"),
        ((MAGIC, 2, 2, 8), "version 2"),
        ((MAGIC, VERSION, 0, 8), "unknown kind 0"),
        ((MAGIC, VERSION, 20, 8), "unknown kind 20"),
        ((MAGIC, VERSION, 2, 7), "Prepare of 7 bytes"),
        ((MAGIC, VERSION, 2, 9), "Prepare of 9 bytes"),
        ((MAGIC, VERSION, 7, 71), "Append of 71 bytes"),
        ((MAGIC, VERSION, 7, 72 + FRAMES_BYTES_MAX + 1), "Append of"),
        ((MAGIC, VERSION, 5, 16 + 16 * 65_536 + 16), "Fetch of"),
    ],
)
def test_a_bad_header_is_refused_before_its_body_comes(header: tuple, says: str) -> None:
    with pytest.raises(WireError, match=says):
        Decoder().feed(HEADER.pack(*header))


@pytest.mark.parametrize(
    "table", [((2, 0), (1, 10)), ((1, 0), (1, 10)), ((1, 10), (2, 10)), ((1, 10), (2, 0))]
)
def test_tables_are_in_order(table: tuple) -> None:
    with pytest.raises(WireError, match="out of order"):
        Decoder().feed(raw(Fetch(1, 0, table)))


def test_a_table_of_more_epochs_than_fit_says_the_newest() -> None:
    """A segment has room for a million leaderships, and the newest one is never removed."""
    table = tuple((epoch, epoch * 64) for epoch in range(1, EPOCHS_MAX + 3))
    (back,) = Decoder().feed(raw(Reject(table[-1][0], table[-1][1] + 64, True, table)))
    assert isinstance(back, Reject)
    assert back.table == table[2:]
    end = back.end
    assert common_end(table[:-1], end, back.table, end) == table[-1][1]


def test_half_an_entry_of_a_table_is_refused() -> None:
    body = struct.pack("<QQ", 1, 2) + bytes(8)
    with pytest.raises(WireError, match="table is cut short"):
        Decoder().feed(HEADER.pack(MAGIC, VERSION, 5, len(body)) + body)


def test_before_who_speaks_is_proven_only_hello_may_come() -> None:
    decoder = Decoder([Hello])
    hello = KNOWN[0][0]
    assert decoder.feed(raw(hello)) == [hello]
    with pytest.raises(WireError, match="not accepted here"):
        decoder.feed(raw(Prepare(1)))
    decoder = Decoder()
    assert decoder.feed(raw(Prepare(1))) == [Prepare(1)]


def test_frames_are_not_copied() -> None:
    data = memoryview(b"frames")
    assert encode(Fetched(1, 2, 3, data))[1] is data


@pytest.mark.parametrize("tail", ["ff00", "0300 6162", "0200 ff00"])
def test_a_piece_that_is_not_what_it_says(tail: str) -> None:
    """A name that is longer than what came, or no text."""
    body = bytes(32) + bytes.fromhex(tail)
    with pytest.raises(WireError):
        Decoder().feed(HEADER.pack(MAGIC, VERSION, 14, len(body)) + body)
