"""Frames of the physical log: what they are, and their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

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
