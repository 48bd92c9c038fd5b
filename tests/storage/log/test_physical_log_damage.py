"""A physical log that rots, is cut short or loses files: damage is told from a torn tail.

Method: tables of what was broken, where, and what proves that it was whole before.
"""

from __future__ import annotations

import pytest

from delaylog.storage.errors import CorruptionError
from delaylog.storage.layout import FRAME_HEADER_SIZE
from delaylog.storage.log.log_reader import segment_name
from tests.storage.fake_disk import FakeDisk
from tests.storage.log.small_log import FOLDER, append, filled, open_log


def segment_of(disk: FakeDisk, position: int) -> tuple[str, int]:
    bases = [int(name[:-4]) for name in disk.listdir(FOLDER)]
    base = max(b for b in bases if b <= position)
    return f"{FOLDER}/{segment_name(base)}", base


REGIONS = {
    "magic": 0,
    "version": 4,
    "kind": 5,
    "flags": 6,
    "payload size": 8,
    "crc": 12,
    "epoch": 16,
    "position": 24,
    "synced position": 32,
    "leader time": 40,
    "tick second": 48,
    "tick local index": 52,
    "tick position": 56,
    "payload": FRAME_HEADER_SIZE,
    "payload's middle": FRAME_HEADER_SIZE + 100,
}


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("which", [0, 3, 7, 11])
@pytest.mark.parametrize("proof", ["durable end", "later frame"])
def test_rot_is_an_error(region: str, which: int, proof: str) -> None:
    """A flipped bit below a known durable end names segment and position."""
    disk, positions, end = filled()
    position = positions[which]
    path, base = segment_of(disk, position)
    disk.flip(path, (position - base + REGIONS[region]) * 8 + 1)
    if proof == "later frame" and which == 11:
        # Nothing says that the last frame was ever synced: it is a torn tail.
        _, found = open_log(disk, 0, 0)
        assert [f.header.position for f in found] == positions[:which]
        return
    with pytest.raises(CorruptionError) as caught:
        open_log(disk, 0, end if proof == "durable end" else 0)
    assert caught.value.path == path
    assert caught.value.position == position


def test_a_frame_of_another_position_is_an_error() -> None:
    """A misdirected write leaves a frame whose checksum is right; it is not read as another one."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    first, second = append(log, b"one"), append(log, b"two")
    log.write_pending()
    end = log.sync()
    file = disk.open(f"{FOLDER}/{segment_name(0)}")
    file.pwritev([file.pread(second - first, first)], second)
    for read in (lambda: log.frame_at(second), lambda: open_log(disk, 0, end)):
        with pytest.raises(CorruptionError) as caught:
            read()
        assert caught.value.position == second


def test_torn_tail_is_cut() -> None:
    """Bytes behind the durable end that are no frame go, and the file ends where frames end."""
    for tail in (b"\0" * 700, b"DLLG" + b"\1" * 200, b"x"):
        disk, positions, end = filled()
        path, base = segment_of(disk, end)
        file = disk.open(path)
        file.pwritev([tail], end - base)
        file.close()
        log, found = open_log(disk, 0, end)
        assert [f.header.position for f in found] == positions
        assert len(disk.content(path)) == end - base
        assert log.end_position == end


@pytest.mark.parametrize("keep", range(0, 200, 23))
def test_truncated_below_the_durable_end(keep: int) -> None:
    """A log that lost durable bytes is an error, not a shorter log."""
    disk, positions, end = filled()
    path, base = segment_of(disk, positions[-1])
    file = disk.open(path)
    file.truncate(positions[-1] - base + min(keep, end - positions[-1] - 1))
    with pytest.raises(CorruptionError):
        open_log(disk, 0, end)


def test_log_shorter_than_the_checkpoint() -> None:
    """A segment that ends below the start of replay is an error: it is not filled with zeros."""
    disk, positions, end = filled()
    path, base = segment_of(disk, end)
    disk.open(path).truncate(positions[-1] - base)
    with pytest.raises(CorruptionError):
        open_log(disk, end, end)


def test_missing_segments() -> None:
    """No file at all, the first, or one in the middle: each is an error that says so."""
    for victim in range(4):
        disk, _, end = filled()
        names = disk.listdir(FOLDER)
        assert len(names) >= 4, "the workload rolls"
        for name in names if victim == 0 else [names[victim - 1]]:
            disk.unlink(f"{FOLDER}/{name}")
        with pytest.raises(CorruptionError):
            open_log(disk, 0, end)


@pytest.mark.parametrize("victim", [1, 2])
def test_a_gap_that_only_a_later_frame_proves(victim: int) -> None:
    """The checkpoint knows of no durable frames; those behind the gap say that all were synced."""
    disk, _, _ = filled()
    names = disk.listdir(FOLDER)
    disk.unlink(f"{FOLDER}/{names[victim]}")
    with pytest.raises(CorruptionError, match="a gap") as caught:
        open_log(disk, 0, 0)
    assert caught.value.position == int(names[victim][:-4])


def test_hops_call_rot_by_its_name() -> None:
    """A frame that is not the one written is an error that names segment and position."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    for number in range(6):
        append(log, b"x" * 50 + bytes([number]))
    log.write_pending()
    log.sync()
    for at in (3, 70):
        file = disk.open(f"{FOLDER}/{segment_name(0)}")
        kept = file.pread(1, at)
        file.pwritev([bytes([kept[0] ^ 1])], at)
        with pytest.raises(CorruptionError) as error:
            log.hops(0).run(9, lambda head: True)
        assert error.value.position == 0
        file.pwritev([kept], at)
    assert len(log.hops(0).run(9, lambda head: True)) == 6
