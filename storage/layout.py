"""Every on-disk record of a data folder, declared once.

All integers are little-endian. A file, and a record that is read on its own, begins with magic and
version. Kind 0 and global index 0 are never valid, so unwritten space is never taken for a record.
Sizes are asserted here and a test pins the bytes of a known record of each kind, so a change of
format is always deliberate.

    file                       records
    log/<base position>.log    Frame header (64) + payload, one after another
    hours/<UTC hour>/
      delay.log                id, key, tags, headers, body of each row, without gaps
      delay.index              INDEX_ENTRY (112), row 1 first
      second.index             FILE_HEADER (32) + 3,600 x SECOND_ENTRY (16)
      state, state.GROUP       STATE_ENTRY (32), row 1 first; a hole reads as "never handed out";
                               each entry is sealed (state_seal.py)
      extents                  EXTENT (128), one per flushed range
    tick                       2 x TICK_SLOT (64, in sectors of 512)
    checkpoint-<n>             FILE_HEADER (32) + msgpack; its two numbers are the position, and how
                               many bytes before it a start needs of the log
    keyspace/<position>.snapshot   see broker/keyspace/snapshots.py
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

_Data = TypeVar("_Data", bytes, memoryview)

Int64Array: TypeAlias = npt.NDArray[np.int64]
RowArray: TypeAlias = npt.NDArray[np.void]
StateArray: TypeAlias = npt.NDArray[np.void]

HOUR_MS: Final = 3_600_000
SECOND_MS: Final = 1_000
HOUR_SECONDS: Final = 3_600
NEVER_MS: Final = 2**63 - 1
"""An `expires_at` that never comes."""
HOLD: Final = "hold"
"""A file of a data folder. A program that copies from the folder has a shared lock on it; while it
is locked, retention removes no segment and no hour."""

# --------------------------------------------------------------------------- refs
#
#   63      62 ...... 43   42 ..... 32   31 ............ 0
#   sign 0   hour (20)     tag (11)      global index (32)

HOUR_BITS: Final = 20
TAG_BITS: Final = 11
INDEX_BITS: Final = 32
TAG_COUNT: Final = 1 << TAG_BITS
HOUR_SHIFT: Final = TAG_BITS + INDEX_BITS
INDEX_MASK: Final = (1 << INDEX_BITS) - 1
TAG_MASK: Final = TAG_COUNT - 1
NO_TAG: Final = (1 << 16) - 1
"""The `epoch_tag` of a row that compaction removed, as readers get it. No ref has this tag."""
assert NO_TAG > TAG_MASK
HOUR_MAX: Final = (1 << HOUR_BITS) - 1
DUE_MS_MAX: Final = (HOUR_MAX + 1) * HOUR_MS - 1
"""The last due time that a ref can name, in August 2089."""
assert HOUR_BITS + TAG_BITS + INDEX_BITS == 63, "a ref must stay a positive int64"


def make_ref(hour: int, tag: int, index: int) -> int:
    """The int64 ref of a row."""
    return (hour << HOUR_SHIFT) | (tag << INDEX_BITS) | index


def ref_to_id(ref: int) -> str:
    """The printable, server-made id of an origin ref."""
    return f"~{ref:016x}"


def refs_to_ids(refs: Sequence[int]) -> list[str]:
    """`ref_to_id` of each; the digits of all are made at once."""
    digits = struct.pack(f">{len(refs)}q", *refs).hex()
    return ["~" + digits[at : at + 16] for at in range(0, len(digits), 16)]


# --------------------------------------------------------------------------- physical log

FRAME_MAGIC: Final = 0x474C4C44  # "DLLG"
FRAME_VERSION: Final = 1
FRAME_HEADER: Final = struct.Struct("<IBBHIIQQQqIIQ")
FRAME_HEADER_SIZE: Final = 64
assert FRAME_HEADER.size == FRAME_HEADER_SIZE
EPOCH_NODE_BITS: Final = 16
EPOCH_NODE_MASK: Final = (1 << EPOCH_NODE_BITS) - 1


class FrameKind(IntEnum):
    """What a frame of the physical log changes. 0 is never valid."""

    EPOCH_BEGIN = 1
    SEND = 2
    LEASE = 3
    SETTLE = 4
    MOVE = 5
    TOPIC = 6
    FLOOR = 7
    HOUR_FLOOR = 8
    CLOCK = 9
    JOB = 10
    GROUP = 11
    KEYSPACE = 12
    TXN = 13
    PUBLISH = 14
    CLAIM = 15
    ARCHIVE = 16
    LEVEL = 17
    ACCESS = 18
    SCHEDULE = 19
    MULTI = 20
    TARGET = 21
    HELD = 22


class FrameHeader(NamedTuple):
    """The fixed head of a frame, decoded.

    0  magic u32 | 4 version u8 | 5 kind u8 | 6 flags u16 | 8 payload length u32 | 12 crc32c u32
    16 epoch u64 (counter 48, node 16) | 24 position u64 | 32 synced_position u64
    40 leader time i64 | 48 tick second u32 | 52 tick local_index u32 | 56 tick position u64
    """

    magic: int
    version: int
    kind: int
    flags: int
    payload_size: int
    crc: int
    epoch: int
    position: int
    synced_position: int
    leader_time_ms: int
    tick_second: int
    tick_local_index: int
    tick_position: int


# --------------------------------------------------------------------------- delay hours

DEFAULT_GROUP: Final = 1
"""Number of a topic's default group."""


def hour_name(hour: int) -> str:
    """Folder name of an hour: its UTC start, so a listing sorts by time."""
    return datetime.fromtimestamp(hour * HOUR_MS // 1000, UTC).strftime("%Y-%m-%dT%HZ")


def hour_of_name(name: str) -> int | None:
    """The hour that a folder name stands for, or None."""
    try:
        start = datetime.strptime(name, "%Y-%m-%dT%HZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(start.timestamp()) * 1000 // HOUR_MS


def group_of_name(name: str) -> int | None:
    """The group whose state column this file of an hour has, or None."""
    if name == "state":
        return DEFAULT_GROUP
    return int(name[6:]) if name.startswith("state.") and name[6:].isdigit() else None


def state_name(group: int) -> str:
    """The file of a group's state column in the folder of an hour."""
    return "state" if group == DEFAULT_GROUP else f"state.{group}"


INDEX_ENTRY: Final = np.dtype(
    [
        ("offset", "<u8"),
        ("size", "<u4"),
        ("local_index", "<u4"),
        ("global_index", "<u4"),
        ("pre_global_index", "<u4"),
        ("deliver_at", "<i8"),
        ("expires_at", "<i8"),
        ("sent_at", "<i8"),
        ("sent_position", "<u8"),
        ("tag_mask", "<u8"),
        ("key_hash", "<u8"),
        ("id_hash", "<u8"),
        ("topic", "<u4"),
        ("group", "<u4"),
        ("priority", "<i4"),
        ("epoch_tag", "<u2"),
        ("max_retry", "<u2"),
        ("id_size", "<u2"),
        ("key_size", "<u2"),
        ("tags_size", "<u2"),
        ("headers_size", "<u2"),
        ("origin", "<i8"),
    ]
)
INDEX_ENTRY_SIZE: Final = 112
assert INDEX_ENTRY.itemsize == INDEX_ENTRY_SIZE
_STRUCT_CODES: Final = {"<u2": "H", "<u4": "I", "<u8": "Q", "<i4": "i", "<i8": "q"}
INDEX_ROW: Final = struct.Struct(
    "<" + "".join(_STRUCT_CODES[field[1]] for field in INDEX_ENTRY.descr)
)
"""The same record for a row that is made of Python's integers, in the order of its fields."""
assert INDEX_ROW.size == INDEX_ENTRY_SIZE
INDEX_WORDS: Final = INDEX_ENTRY_SIZE // 4
PRE_GLOBAL_INDEX_WORD: Final = 5
TEXT_SIZES_WORD: Final = 12
"""The 64-bit word of a row that contains exactly the sizes of id, key, tags and headers."""
TEXTS: Final = ("id", "key", "tags", "headers")
"""The parts of a record in front of the body, in their order."""
TEXT_SIZES: Final = tuple(f"{name}_size" for name in TEXTS)
"""Their sizes in a row."""
_fields = INDEX_ENTRY.fields
assert _fields is not None
assert {_fields[name][1] // 8 for name in TEXT_SIZES} == {TEXT_SIZES_WORD}
assert _fields["pre_global_index"][1] == PRE_GLOBAL_INDEX_WORD * 4

SECOND_ENTRY: Final = np.dtype([("newest", "<u8"), ("count", "<u8")])
SECOND_ENTRY_SIZE: Final = 16
assert SECOND_ENTRY.itemsize == SECOND_ENTRY_SIZE

STATE_ENTRY: Final = np.dtype(
    [
        ("state", "u1"),
        ("cause", "u1"),
        ("attempts", "<u2"),
        ("seal", "<u4"),
        ("lease", "<u8"),
        ("time", "<i8"),
        ("forward", "<i8"),
    ]
)
STATE_ENTRY_SIZE: Final = 32
assert STATE_ENTRY.itemsize == STATE_ENTRY_SIZE
STATE_VALUES: Final = struct.Struct("<BBHIQqq")
assert STATE_VALUES.size == STATE_ENTRY_SIZE


class StateValues(NamedTuple):
    """One STATE_ENTRY as plain integers."""

    state: int
    cause: int
    attempts: int
    seal: int
    lease: int
    time: int
    forward: int


assert STATE_ENTRY.names == StateValues._fields
BLANK_STATE: Final = StateValues(0, 0, 0, 0, 0, 0, 0)
"""The entry of a row that was never handed out."""

EXTENT: Final = np.dtype(
    [
        ("magic", "<u4"),
        ("version", "<u2"),
        ("flags", "<u2"),
        ("first_index", "<u4"),
        ("count", "<u4"),
        ("log_offset", "<u8"),
        ("log_size", "<u8"),
        ("index_crc", "<u4"),
        ("log_crc", "<u4"),
        ("due_min", "<i8"),
        ("due_max", "<i8"),
        ("topic_bits", "<u8"),
        ("tag_bits", "<u8"),
        ("position_first", "<u8"),
        ("position_last", "<u8"),
        ("unused", "V36"),
        ("crc", "<u4"),
    ]
)
EXTENT_SIZE: Final = 128
assert EXTENT.itemsize == EXTENT_SIZE
EXTENT_MAGIC: Final = 0x54584C44  # "DLXT"
EXTENT_REWRITTEN: Final = 1
"""Compaction wrote the range: removed rows read as zeros, and offsets differ from other nodes'."""
EXTENT_HOLE: Final = 2
"""Every row of the range was removed: its part of the index is a hole in the file, not checked."""

# --------------------------------------------------------------------------- far tier

RUN_HEADER: Final = struct.Struct("<IHHQQQQIII12x")
RUN_HEADER_SIZE: Final = 64
assert RUN_HEADER.size == RUN_HEADER_SIZE
RUN_MAGIC: Final = 0x4E524C44  # "DLRN"
RUN_BLOCK: Final = np.dtype([("rows_crc", "<u4"), ("log_crc", "<u4"), ("log_start", "<u8")])
assert RUN_BLOCK.itemsize == 16
RUN_BLOCK_ROWS: Final = 1_024

# --------------------------------------------------------------------------- stand-alone files

FILE_HEADER: Final = struct.Struct("<IHHQQII")
FILE_HEADER_SIZE: Final = 32
assert FILE_HEADER.size == FILE_HEADER_SIZE
FILE_VERSION: Final = 1
SECOND_MAGIC: Final = 0x58534C44  # "DLSX"
CHECKPOINT_MAGIC: Final = 0x50434C44  # "DLCP"
HELD_MAGIC: Final = 0x44484C44  # "DLHD"

TICK_SLOT: Final = struct.Struct("<IHHQQIIQQqI4x")
TICK_SLOT_SIZE: Final = 64
assert TICK_SLOT.size == TICK_SLOT_SIZE
TICK_SLOT_STRIDE: Final = 512
"""Slots are a sector apart, so a torn write of one can never damage the other."""
TICK_MAGIC: Final = 0x4B544C44  # "DLTK"


class MessageState(IntEnum):
    """States of a message; MOVED is internal: the message continues in another row.

    WAITING, READY and REPLACED are not stored: they follow from a row's due time, and from the
    cause of a stored CANCELLED.
    """

    NONE = 0
    WAITING = 1
    READY = 2
    LEASED = 3
    ACKED = 4
    EXPIRED = 5
    DEAD = 6
    CANCELLED = 7
    MOVED = 8
    REPLACED = 9


# Plain numbers for columns: numpy needs ten times as long to compare one with a member of an enum.
STATE_NONE: Final = int(MessageState.NONE)
STATE_ENDED_FIRST: Final = int(MessageState.ACKED)


class Cause(IntEnum):
    """Why a row is in its state."""

    NONE = 0
    RECEIVE = 1
    ACK = 2
    NACK = 3
    LEASE_EXPIRED = 4
    CANCEL = 5
    TTL = 6
    RETRIES = 7
    RESCHEDULE = 8
    REPLACED = 9
    REPLAY = 10
    PURGE = 11
    FORGOTTEN = 12
    """An ended message whose sender asked for it to be forgotten at once."""


def seal_file(magic: int, payload: bytes, *, a: int = 0, b: int = 0) -> bytes:
    """Header + payload of a stand-alone file; each kind of file gives `a` and `b` a meaning.

    0 magic u32 | 4 version u16 | 6 level u16 | 8 a u64 | 16 b u64
    24 payload size u32 | 28 crc32c u32

    The level is the feature level that a reader needs; 0 = any.
    """
    return seal_parts(magic, [payload], a=a, b=b) + payload


def seal_parts(
    magic: int, parts: Sequence[bytes], *, a: int = 0, b: int = 0, level: int = 0
) -> bytes:
    """The header alone of a stand-alone file; `parts` are its payload, one after another."""
    size = sum(map(len, parts))
    crc = crc32c(FILE_HEADER.pack(magic, FILE_VERSION, level, a, b, size, 0))
    for part in parts:
        crc = crc32c(part, crc)
    return FILE_HEADER.pack(magic, FILE_VERSION, level, a, b, size, crc)


def level_of_file(data: bytes) -> int:
    """The feature level that an intact sealed file needs."""
    level: int = FILE_HEADER.unpack_from(data)[2]
    return level


def open_file(magic: int, data: _Data) -> tuple[_Data, int, int] | None:
    """The payload and the two numbers of a sealed file, or None if it is damaged.

    The payload of a memoryview is a memoryview.
    """
    if len(data) < FILE_HEADER_SIZE:
        return None
    found, version, level, a, b, size, crc = FILE_HEADER.unpack_from(data)
    if found != magic or version != FILE_VERSION:
        return None
    payload = data[FILE_HEADER_SIZE : FILE_HEADER_SIZE + size]
    if len(payload) != size or len(data) != FILE_HEADER_SIZE + size:
        return None
    head = FILE_HEADER.pack(found, version, level, a, b, size, 0)
    return (payload, a, b) if crc32c(payload, crc32c(head)) == crc else None


def head_sizes(rows: RowArray) -> Int64Array:
    """Bytes of each record in front of its body."""
    total = np.zeros(len(rows), np.int64)
    for name in TEXT_SIZES:
        total += rows[name]
    return total
