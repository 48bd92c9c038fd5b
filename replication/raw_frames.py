"""Frames as bytes from a peer: each is checked before any of them is used.

The checks are those of a log's recovery: whole frames in sequence with correct checksums, and an
epoch that never falls and rises only with an EPOCH_BEGIN.
"""

from __future__ import annotations

from typing import NamedTuple

from delaylog.replication.configuration import Configuration
from delaylog.replication.errors import ClusterError, PeerError
from delaylog.replication.watermark import EpochTick
from delaylog.storage.layout import FRAME_HEADER_SIZE, FrameKind
from delaylog.storage.log.frames import check_header, frame_crc
from delaylog.storage.log.levels import KNOWN_LEVEL, decode_level, is_known
from delaylog.storage.messages.batch import Block


class RawFrame(NamedTuple):
    """A checked frame: its position, epoch and tick."""

    position: int
    end: int
    epoch: int
    begins: bool
    tick: EpochTick
    level: int = 0
    """The feature level that it raises the log to; 0 = none."""
    configuration: Configuration | None = None
    """The configuration of the epoch that it begins."""


def split_frames(data: Block, position: int, epoch: int) -> list[RawFrame]:
    """The frames in `data`, which begins at `position` after a frame of `epoch`.

    Raises PeerError.
    """
    out: list[RawFrame] = []
    at, size = 0, len(data)
    while at < size:
        raw = bytes(data[at : at + FRAME_HEADER_SIZE])
        header = check_header(raw, position + at) if len(raw) == FRAME_HEADER_SIZE else None
        if header is None:
            raise PeerError(f"no frame begins at {position + at}")
        end = at + FRAME_HEADER_SIZE + header.payload_size
        if end > size:
            raise PeerError(f"the frame at {position + at} is cut short")
        if frame_crc(raw, data[at + FRAME_HEADER_SIZE : end]) != header.crc:
            raise PeerError(f"the frame at {position + at} is damaged")
        if not is_known(header):
            raise PeerError(
                f"the frame at {position + at} is of version {header.version} and kind "
                f"{header.kind}: a newer delaylog wrote it; run that release here"
            )
        level = 0
        if header.kind == FrameKind.LEVEL:
            level, _ = decode_level(data[at + FRAME_HEADER_SIZE : end])
        if level > KNOWN_LEVEL:
            raise PeerError(
                f"the log is at feature level {level}, and this delaylog knows {KNOWN_LEVEL}: "
                "run a newer release here"
            )
        begins = header.kind == FrameKind.EPOCH_BEGIN
        configuration = None
        if begins:
            try:
                configuration = Configuration.decode(data[at + FRAME_HEADER_SIZE : end])
            except ClusterError as error:
                raise PeerError(f"the frame at {position + at}: {error}") from error
        if not (header.epoch > epoch if begins else header.epoch == epoch):
            raise PeerError(f"the frame at {position + at} has epoch {header.epoch:#x}")
        epoch = header.epoch
        ticks = (header.tick_second, header.tick_local_index, header.tick_position)
        tick = EpochTick(epoch, *ticks, header.leader_time_ms)
        out.append(
            RawFrame(position + at, position + end, epoch, begins, tick, level, configuration)
        )
        at = end
    return out
