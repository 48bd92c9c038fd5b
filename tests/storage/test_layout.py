"""On-disk records: their exact bytes, their sizes, and that no flipped bit passes for good.

Purpose: a change of format is always deliberate. Method: one known record of each layout against
bytes that were written down once; every single-bit change of what carries a checksum.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.storage import layout
from delaylog.storage.hours.second_index import SecondIndex
from delaylog.storage.layout import (
    CHECKPOINT_MAGIC,
    EXTENT,
    FRAME_HEADER,
    FRAME_HEADER_SIZE,
    HOUR_MAX,
    HOUR_SHIFT,
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_MASK,
    SECOND_ENTRY,
    SECOND_MAGIC,
    STATE_ENTRY,
    TAG_MASK,
    TICK_SLOT,
    FrameKind,
    MessageState,
    make_ref,
    open_file,
    ref_to_id,
    seal_file,
)
from delaylog.storage.log.frames import Tick, encode_frame
from delaylog.storage.log.log_reader import segment_name
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.tick_slots import TickRecord, decode_slot, encode_slot
from tests.storage.fake_disk import FakeDisk

NOW_MS = 1_700_000_000_123
TICK = Tick(1_700_000_000, 7, 2048)


def frame_bytes(position: int = 4096, synced: int = 1024) -> bytes:
    parts, size = encode_frame(
        FrameKind.SEND,
        [b"he", b"llo"],
        (0x30001, NOW_MS, TICK),
        position=position,
        synced_position=synced,
    )
    raw = b"".join(parts)
    assert len(raw) == size
    return raw


def numbered(dtype: np.dtype) -> bytes:
    """A record whose k-th field holds k."""
    record = np.zeros(1, dtype)
    for number, name in enumerate(dtype.names or (), 1):
        if dtype[name].kind in "ui":
            record[name] = number
    return record.tobytes()


PINNED = {
    "frame": (
        frame_bytes(),
        "444c4c47 01 02 0000 05000000 bce69f90 0100030000000000 0010000000000000 0004000000000000"
        "7b68e5cf8b010000 00f15365 07000000 0008000000000000 68656c6c6f",
    ),
    "index entry": (
        numbered(INDEX_ENTRY),
        "0100000000000000 02000000 03000000 04000000 05000000 0600000000000000 0700000000000000"
        "0800000000000000 0900000000000000 0a00000000000000 0b00000000000000 0c00000000000000"
        "0d000000 0e000000 0f000000 1000 1100 1200 1300 1400 1500 1600000000000000",
    ),
    "second entry": (numbered(SECOND_ENTRY), "0100000000000000 0200000000000000"),
    "state entry": (
        numbered(STATE_ENTRY),
        "01 02 0300 04000000 0500000000000000 0600000000000000 0700000000000000",
    ),
    "extent": (
        numbered(EXTENT),
        "01000000 0200 0300 04000000 05000000 0600000000000000 0700000000000000 08000000 09000000"
        "0a00000000000000 0b00000000000000 0c00000000000000 0d00000000000000 0e00000000000000"
        f"0f00000000000000 {'00' * 36} 11000000",
    ),
    "tick slot": (
        encode_slot(TickRecord(0x30001, TICK, 4096, NOW_MS), 5),
        "444c544b 0100 0000 0500000000000000 0100030000000000 00f15365 07000000 0008000000000000"
        "0010000000000000 7b68e5cf8b010000 b3ea3a77 00000000",
    ),
    "checkpoint header": (
        seal_file(CHECKPOINT_MAGIC, b"\x80", a=4096),
        "444c4350 0100 0000 0010000000000000 0000000000000000 01000000 4ba63090 80",
    ),
}


@pytest.mark.parametrize("name", PINNED)
def test_pinned_bytes(name: str) -> None:
    raw, expected = PINNED[name]
    assert raw.hex() == expected.replace(" ", "")


def test_pinned_ref() -> None:
    ref = make_ref(472_222, 3, 9)
    assert ref == 4_153_708_652_018_008_073
    assert ref_to_id(ref) == "~39a4f00300000009"


def test_sizes() -> None:
    assert FRAME_HEADER.size == 64
    assert layout.FILE_HEADER.size == 32
    assert TICK_SLOT.size == 64
    assert layout.TICK_SLOT_STRIDE == 512
    sizes = [t.itemsize for t in (INDEX_ENTRY, SECOND_ENTRY, STATE_ENTRY, EXTENT)]
    assert sizes == [112, 16, 32, 128]


def test_zero_is_nothing() -> None:
    """Unwritten space reads as nothing: no frame, no slot, no file, no state."""
    assert 0 not in set(FrameKind)
    assert MessageState(0) is MessageState.NONE
    assert decode_slot(bytes(64)) is None
    for magic in (CHECKPOINT_MAGIC, SECOND_MAGIC):
        assert open_file(magic, bytes(64)) is None
    disk = FakeDisk()
    disk.mkdir("log")
    disk.put(f"log/{segment_name(0)}", bytes(4096))
    assert list(PhysicalLog(disk, "log").recover(0, 0)) == []


@given(st.integers(0, HOUR_MAX), st.integers(0, 2047), st.integers(0, 2**32 - 1))
def test_refs_round_trip(hour: int, tag: int, index: int) -> None:
    ref = make_ref(hour, tag, index)
    assert 0 <= ref < 2**63
    assert (ref >> HOUR_SHIFT, ref >> INDEX_BITS & TAG_MASK, ref & INDEX_MASK) == (hour, tag, index)
    assert int(ref_to_id(ref)[1:], 16) == ref


def flips(raw: bytes) -> list[bytes]:
    out = []
    for bit in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        out.append(bytes(changed))
    return out


def test_every_bit_of_a_tick_slot_counts() -> None:
    raw = PINNED["tick slot"][0]
    assert decode_slot(raw) == (TickRecord(0x30001, TICK, 4096, NOW_MS), 5)
    assert [bad for bad in flips(raw) if decode_slot(bad) is not None] == []
    assert all(decode_slot(raw[:size]) is None for size in range(64))


def test_every_bit_of_a_sealed_file_counts() -> None:
    raw = seal_file(SECOND_MAGIC, b"some payload", a=7, b=9)
    assert open_file(SECOND_MAGIC, raw) == (b"some payload", 7, 9)
    assert open_file(CHECKPOINT_MAGIC, raw) is None
    assert [bad for bad in flips(raw) if open_file(SECOND_MAGIC, bad) is not None] == []
    assert all(open_file(SECOND_MAGIC, raw[:size]) is None for size in range(len(raw)))
    assert open_file(SECOND_MAGIC, raw + b"\0") is None


def test_every_bit_of_a_frame_counts() -> None:
    raw = frame_bytes(0, 0)
    disk = FakeDisk()
    disk.mkdir("log")
    path = f"log/{segment_name(0)}"
    disk.put(path, raw)
    assert len(list(PhysicalLog(disk, "log").recover(0, 0))) == 1
    for bad in flips(raw):
        disk.put(path, bad)
        assert list(PhysicalLog(disk, "log").recover(0, 0)) == []
    for size in range(FRAME_HEADER_SIZE + 5):
        disk.put(path, raw[:size])
        assert list(PhysicalLog(disk, "log").recover(0, 0)) == []


def test_second_index_round_trip() -> None:
    index = SecondIndex()
    index.newest[[0, 7, 3599]] = [3, 2**32 - 1, 1]
    index.count[[0, 7, 3599]] = [2, 1, 5]
    index.covers = 8
    raw = index.encode()
    assert len(raw) == 32 + 3_600 * 16
    again = SecondIndex.decode(raw)
    assert again is not None
    assert (again.newest == index.newest).all()
    assert (again.count == index.count).all()
    assert again.covers == 8
    assert SecondIndex.decode(raw[:-1]) is None
    assert SecondIndex.decode(seal_file(SECOND_MAGIC, b"short")) is None
