"""A physical log of small segments, and frames whose bytes say which one they are."""

from __future__ import annotations

from delaylog.storage.layout import FrameKind
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.physical_log import PhysicalLog
from tests.storage.fake_disk import FakeDisk

FOLDER = "data/log"
SMALL = 2_000
"""Segments of this size roll every few frames."""


def open_log(disk: FakeDisk, start: int = 0, durable_end: int = 0) -> tuple[PhysicalLog, list]:
    disk.mkdir("data")
    disk.sync_folder("")
    log = PhysicalLog(disk, FOLDER, segment_bytes_max=SMALL)
    return log, list(log.recover(start, durable_end))


def append(log: PhysicalLog, payload: bytes, kind: FrameKind = FrameKind.SEND) -> int:
    return log.append(kind, [payload], epoch=65_536, leader_time_ms=7, tick=Tick(1, 2, 3))


def write(log: PhysicalLog, payload: bytes) -> int:
    """Append a frame and write it."""
    position = append(log, payload)
    log.write_pending()
    return position


def payload(number: int) -> bytes:
    """Recognisable bytes of a size that moves across sectors."""
    return bytes([number % 251]) * (number * 137 % 900)


def filled() -> tuple[FakeDisk, list[int], int]:
    """A disk with a synced log of several segments, its frames' positions and its end."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    positions = []
    for number in range(12):
        positions.append(write(log, payload(number + 5)))
        log.sync()
    log.close()
    disk.sync_all()
    return disk, positions, log.end_position
