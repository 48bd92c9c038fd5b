"""The tick on disk: two checksummed slots, written in turn, never the same one twice.

    0 magic u32 | 4 version u16 | 6 zero u16 | 8 sequence u64 | 16 epoch u64 | 24 second u32
    28 local_index u32 | 32 position u64 | 40 durable end u64 | 48 wall time i64
    56 crc32c u32 | 60 pad

A torn write damages one slot and leaves the other intact; the newest intact slot is read.
`durable_end` is the log position up to which this node has synced: it tells corruption from a torn
tail.
"""

from __future__ import annotations

from dataclasses import dataclass

from crc32c import crc32c

from delaylog.storage.files.file_system import File, FileSystem
from delaylog.storage.layout import (
    FILE_VERSION,
    TICK_MAGIC,
    TICK_SLOT,
    TICK_SLOT_SIZE,
    TICK_SLOT_STRIDE,
)
from delaylog.storage.log.frames import Tick


@dataclass(frozen=True, slots=True)
class TickRecord:
    """One slot's content."""

    epoch: int
    tick: Tick
    durable_end: int
    wall_time_ms: int


def encode_slot(record: TickRecord, sequence: int) -> bytes:
    """The 64 bytes of a slot."""

    def pack(crc: int) -> bytes:
        return TICK_SLOT.pack(
            TICK_MAGIC,
            FILE_VERSION,
            0,
            sequence,
            record.epoch,
            record.tick.second,
            record.tick.local_index,
            record.tick.position,
            record.durable_end,
            record.wall_time_ms,
            crc & 0x7FFFFFFF,
        )

    return pack(crc32c(pack(0)))


def decode_slot(raw: bytes) -> tuple[TickRecord, int] | None:
    """(record, sequence) of a slot, or None if a byte is wrong."""
    if len(raw) != TICK_SLOT_SIZE:
        return None
    magic, version, _, sequence, epoch, second, local, position, durable, wall, _ = (
        TICK_SLOT.unpack(raw)
    )
    if magic != TICK_MAGIC or version != FILE_VERSION:
        return None
    record = TickRecord(epoch, Tick(second, local, position), durable, wall)
    return (record, sequence) if encode_slot(record, sequence) == raw else None


def read_slots(file: File) -> list[tuple[bytes, tuple[TickRecord, int] | None]]:
    """The bytes of each slot, and its (record, sequence) if it is intact."""
    raws = [file.pread(TICK_SLOT_SIZE, slot * TICK_SLOT_STRIDE) for slot in range(2)]
    return [(raw, decode_slot(raw)) for raw in raws]


def newest_slot(file: File) -> tuple[TickRecord | None, int]:
    """The record and the sequence of the newest intact slot; (None, 0) without one.

    The older one may be about a part of the log that was cut since.
    """
    found = [slot for _, slot in read_slots(file) if slot is not None]
    return max(found, key=lambda slot: slot[1], default=(None, 0))


class TickSlots:
    """The file `tick` of a data folder."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._file = fs.open(path, create=True)
        self.newest, self._sequence = newest_slot(self._file)

    def write(self, record: TickRecord) -> None:
        """Write a record into the older slot, without a sync: an older record is safe, it only
        proves less. On a full disk nothing changes.
        """
        sequence = self._sequence + 1
        self._file.pwritev([encode_slot(record, sequence)], sequence % 2 * TICK_SLOT_STRIDE)
        self._sequence, self.newest = sequence, record

    def sync(self) -> None:
        """Make the slots durable."""
        self._file.fdatasync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
