"""Frames of the physical log: what they are, their bytes, and the feature levels that allow them.

A feature level says which formats a log may contain, so that old and new programs can run together.
A LEVEL frame gives a log its level: the first frame of each log, except for EPOCH_BEGIN frames,
gives it the first level, and a later one raises it. Only behind such a frame may the log contain
kinds and layouts that the level adds. A single broker raises its log at a start. A leader raises it
once every other node of the cluster is connected and has announced that it knows the level; from
then on a node that does not know it is refused. A program that finds a higher level, an unknown
kind of frame or an unknown version reports that the folder is newer, never that it is damaged.

    level  first release  what it adds
    4      0.2.0          everything in docs/FORMATS.md that names no level

Levels below the first one were those of release 0.1.0, whose logs have no LEVEL frame, and of
builds before 0.2.0. Their folders are refused.

For what every later format must keep, see docs/FORMATS.md, "How formats change".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack
from crc32c import crc32c

from delaylog.storage.errors import NewerFormatError, OlderFormatError
from delaylog.storage.layout import (
    FRAME_HEADER,
    FRAME_HEADER_SIZE,
    FRAME_MAGIC,
    FRAME_VERSION,
    FrameHeader,
    FrameKind,
)
from delaylog.storage.log.sizes import PAYLOAD_BYTES_MAX
from delaylog.storage.messages.batch import Block


class Tick(NamedTuple):
    """The dispatch watermark: Unix second, rows of it released, and the log position it covers."""

    second: int = 0
    local_index: int = 0
    position: int = 0


Stamp: TypeAlias = tuple[int, int, Tick]
"""The epoch, the leader's time and the tick at the moment when a frame is made."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame read back: its header and its payload."""

    header: FrameHeader
    payload: Block

    @property
    def end(self) -> int:
        """Position just behind the frame."""
        return self.header.position + FRAME_HEADER_SIZE + self.header.payload_size


def encode_frame(
    kind: FrameKind,
    payload: Sequence[Block],
    stamp: Stamp,
    *,
    position: int,
    synced_position: int,
) -> tuple[list[Block], int]:
    """Buffers of one frame (header first, payload uncopied) and its total size."""
    size = sum(map(len, payload))
    assert size <= PAYLOAD_BYTES_MAX, "the edge's limits keep payloads below the frame limit"
    epoch, leader_time_ms, tick = stamp
    rest = (epoch, position, synced_position, leader_time_ms, *tick)
    head = FRAME_HEADER.pack(FRAME_MAGIC, FRAME_VERSION, kind, 0, size, 0, *rest)
    crc = crc32c(head)
    for part in payload:
        crc = crc32c(part, crc)
    head = FRAME_HEADER.pack(FRAME_MAGIC, FRAME_VERSION, kind, 0, size, crc, *rest)
    return [head, *payload], FRAME_HEADER_SIZE + size


def check_header(raw: bytes, position: int) -> FrameHeader | None:
    """The header at `position`, or None if its fields cannot be a frame's.

    The frame may be of a newer version or kind: see `levels.check_known`, once its checksum is
    known to be right.
    """
    header = FrameHeader(*FRAME_HEADER.unpack(raw))
    sound = bool(
        header.magic == FRAME_MAGIC
        and header.version
        and header.kind
        and header.position == position
        and header.payload_size <= PAYLOAD_BYTES_MAX
        and header.synced_position <= position
    )
    return header if sound else None


def frame_crc(raw_header: bytes, payload: Block) -> int:
    """Checksum of a frame: the header with its crc field zeroed, then the payload."""
    return crc32c(payload, crc32c(raw_header[:12] + b"\0\0\0\0" + raw_header[16:]))


# ------------------------------------------------------------------------------- feature levels

FIRST_LEVEL: Final = 4
"""The level that every log has, and that every node knows."""
KNOWN_LEVEL: Final = 4
"""The highest level that this program reads and writes."""
_KIND_MAX: Final = max(FrameKind)


def check_level(level: int, what: str) -> None:
    """Raise NewerFormatError or OlderFormatError if this program does not read the level."""
    if level < FIRST_LEVEL:
        raise OlderFormatError(what)
    if level > KNOWN_LEVEL:
        raise NewerFormatError(
            f"{what} was written by a newer delaylog (feature level {level}; this one knows "
            f"{KNOWN_LEVEL}): run that release, or a later one, here"
        )


def is_known(header: FrameHeader) -> bool:
    """Whether this program knows the frame's version and kind."""
    return header.version == FRAME_VERSION and header.kind <= _KIND_MAX


def check_known(header: FrameHeader) -> None:
    """Raise NewerFormatError if the version or kind of an intact frame is unknown here."""
    if not is_known(header):
        raise NewerFormatError(
            f"the log was written by a newer delaylog (the frame at {header.position} has version "
            f"{header.version} and kind {header.kind}; this one knows version {FRAME_VERSION} and "
            f"kinds to {_KIND_MAX}, feature level {KNOWN_LEVEL}): run that release, or a later "
            "one, here"
        )


def encode_level(level: int, id_key: bytes) -> bytes:
    """The payload of a LEVEL frame; `id_key` = b"" leaves the log's key as it is."""
    members: dict[str, Any] = {"level": level}
    if id_key:
        members["id_key"] = id_key
    return bytes(msgpack.packb(members))


def decode_level(payload: Block) -> tuple[int, bytes]:
    """(level, key of the hash of ids or b"") of a LEVEL frame."""
    members = msgpack.unpackb(payload)
    return members["level"], members.get("id_key", b"")
