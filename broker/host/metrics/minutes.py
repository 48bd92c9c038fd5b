"""`DIR/minutes`: a row of figures for each of the last seven days' minutes, for `delaylog report`.

The file is a ring of slots: the row of a minute is in slot `minute % SLOTS`, over that of a week
before. It is no part of the data: a row that does not verify is one that is absent.

    slot (1,024 bytes)
    0   magic "DLMN"
    4   crc32c u32 of what follows, up to the end of the row
    8   size u32 of the row
    12  row: msgpack, a map of the fields of `MinuteRow`
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import msgpack
from crc32c import crc32c

from delaylog.broker.engine.late.latest import LATEST_MAX
from delaylog.storage.files.file_system import FILE_MODE

FILE: Final = "minutes"
SLOT_BYTES: Final = 1_024
SLOTS: Final = 7 * 1_440
MINUTE_MS: Final = 60_000
MAGIC: Final = b"DLMN"
HEAD: Final = struct.Struct("<4sII")
assert HEAD.size == 12
UNTAKEN_MAX: Final = 3
"""Groups of a row of which no message was handed out."""


class LateMessage(NamedTuple):
    """One of the latest messages of a minute, and why it was late."""

    topic: str
    message_id: str
    late_ms: int
    at_ms: int
    """When it was handed out."""
    namespace: str = ""
    """Empty in rows of releases that did not keep it."""
    group: str = ""
    causes: Sequence[tuple[str, int]] = ()
    """Causes of its wait (`late.timeline.CAUSES`) with their milliseconds, the longest first."""


class UntakenGroup(NamedTuple):
    """A group that had ready messages all the minute, of which none was handed out."""

    namespace: str
    topic: str
    group: str
    cause: str
    """What bounded it at the end of the minute."""


@dataclass(frozen=True, slots=True)
class MinuteRow:
    """The figures of one minute. Counts are of that minute, the rest is at its end."""

    minute: int
    """Since 1970; the row ends with it."""
    run: int
    """When the process began, in Unix milliseconds: another one after a restart."""
    leading: bool = True
    sent: int = 0
    delivered: int = 0
    ended: int = 0
    dead: int = 0
    living: int = 0
    ready: int = 0
    ready_late: list[int] = field(default_factory=list)
    """Messages by bucket of `lateness.BOUNDS_MS`, from due to ready."""
    out_late: list[int] = field(default_factory=list)
    """The same from due to the first hand-out."""
    syncs: list[int] = field(default_factory=list)
    """Syncs by bucket of `timings.DISK_BOUNDS`."""
    loop_lags: list[int] = field(default_factory=list)
    """Samples by bucket of `loop_lag.BOUNDS`."""
    disk_full: bool = False
    """Sends were refused, at any time of the minute."""
    disk_free: int = 0
    """Bytes."""
    late: list[LateMessage] = field(default_factory=list)
    untaken: list[UntakenGroup] = field(default_factory=list)


_COUNTS: Final = ("sent", "delivered", "ended", "dead")
_LISTS: Final = ("ready_late", "out_late", "syncs", "loop_lags")
_TUPLES: Final[dict[str, type[LateMessage] | type[UntakenGroup]]] = {
    "late": LateMessage,
    "untaken": UntakenGroup,
}
_FIELDS: Final = frozenset(each.name for each in fields(MinuteRow))


def encode_row(row: MinuteRow) -> bytes:
    """A slot. Late messages and groups that do not fit are left out, the last ones first."""
    members = asdict(row)
    while True:
        packed: bytes = msgpack.packb(members)
        if HEAD.size + len(packed) <= SLOT_BYTES:
            break
        (members["late"] or members["untaken"]).pop()
    size = struct.pack("<I", len(packed))
    head = HEAD.pack(MAGIC, crc32c(size + packed), len(packed))
    return (head + packed).ljust(SLOT_BYTES, b"\0")


def decode_row(slot: bytes) -> MinuteRow | None:
    """The row of a slot, None if it has none that is whole. Unknown members are ignored."""
    if len(slot) < HEAD.size:
        return None
    magic, crc, size = HEAD.unpack_from(slot)
    packed = slot[HEAD.size : HEAD.size + size]
    if magic != MAGIC or len(packed) != size or crc != crc32c(slot[8:12] + packed):
        return None
    members = msgpack.unpackb(packed)
    for name, kind in _TUPLES.items():
        members[name] = [kind(*each[: len(kind._fields)]) for each in members.get(name, ())]
    return MinuteRow(**{name: value for name, value in members.items() if name in _FIELDS})


def write_row(folder: str, row: MinuteRow) -> None:
    """Write a row into the file of a data folder, without a sync. Raises OSError.

    If the minute has a row already, as after a restart, the counts of both are added.
    """
    path = f"{folder}/{FILE}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        at = row.minute % SLOTS * SLOT_BYTES
        old = decode_row(os.pread(fd, SLOT_BYTES, at))
        if old is not None and old.minute == row.minute:
            row = _added(old, row)
        os.pwrite(fd, encode_row(row), at)
    finally:
        os.close(fd)


def _added(old: MinuteRow, new: MinuteRow) -> MinuteRow:
    """One row of two parts of a minute."""
    members: dict[str, Any] = {name: getattr(old, name) + getattr(new, name) for name in _COUNTS}
    for name in _LISTS:
        pairs = zip_longest(getattr(old, name), getattr(new, name), fillvalue=0)
        members[name] = [a + b for a, b in pairs]
    late = sorted(old.late + new.late, key=lambda each: -each.late_ms)
    members["late"] = late[:LATEST_MAX]
    members["untaken"] = [*dict.fromkeys(old.untaken + new.untaken)][:UNTAKEN_MAX]
    members["disk_full"] = old.disk_full or new.disk_full
    return replace(new, **members)


def read_rows(folder: str, from_minute: int, to_minute: int) -> list[MinuteRow]:
    """The rows of minutes from `from_minute` to before `to_minute`, in order. Raises OSError."""
    with open(f"{folder}/{FILE}", "rb") as file:
        data = file.read()
    slots = (data[at : at + SLOT_BYTES] for at in range(0, len(data), SLOT_BYTES))
    rows = (decode_row(slot) for slot in slots)
    found = [row for row in rows if row is not None and from_minute <= row.minute < to_minute]
    return sorted(found, key=lambda row: row.minute)
