"""The physical log as replication uses it: read as bytes, fed by another node, cut.

Method: a log of a few segments on the fake disk; every read and cut is compared with where its
frames begin, and cuts meet each kind of power cut.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from delaylog.storage.errors import CorruptionError, DiskFullError
from delaylog.storage.layout import FRAME_HEADER_SIZE
from delaylog.storage.log.log_reader import segment_bases, segment_name
from delaylog.storage.log.physical_log import PhysicalLog
from tests.storage.fake_disk import SURVIVALS, FakeDisk, Survival
from tests.storage.log.small_log import FOLDER, SMALL, append, open_log, payload, write
from tests.storage.small_disk import SmallDisk


def several(count: int = 12) -> tuple[FakeDisk, PhysicalLog, list[int]]:
    """A log of several segments and where its frames begin."""
    disk = FakeDisk()
    log, _ = open_log(disk)
    starts = [write(log, payload(number + 1)) for number in range(count)]
    log.sync()
    return disk, log, starts


@pytest.mark.parametrize("bytes_max", [1, 700, 1_500, 1 << 20])
def test_read_gives_whole_frames(bytes_max: int) -> None:
    _, log, starts = several()
    bounds = [*starts, log.end_position]
    at = 0
    while at < log.end_position:
        data = log.read(at, bytes_max)
        assert at + len(data) in bounds
        first = bounds[bounds.index(at) + 1] - at
        assert first <= len(data) <= max(first, bytes_max)
        at += len(data)


def test_read_writes_what_is_queued() -> None:
    _, log, _ = several(2)
    position = append(log, b"queued")
    assert log.read(position, 1)[FRAME_HEADER_SIZE:] == b"queued"


def test_read_calls_rot_by_its_name() -> None:
    disk, log, starts = several()
    disk.flip(f"{FOLDER}/{segment_name(0)}", 5)
    with pytest.raises(CorruptionError) as caught:
        log.read(starts[0], 1 << 20)
    assert caught.value.position == starts[0]


def test_frames_of_another_node_are_the_same_bytes() -> None:
    _, source, _ = several()
    disk = FakeDisk()
    target, _ = open_log(disk)
    while target.end_position < source.end_position:
        target.append_raw(source.read(target.end_position, 900))
        target.write_pending()
    target.sync()
    target.close()
    again, frames = open_log(disk.restart("nothing"), durable_end=source.end_position)
    assert again.end_position == source.end_position
    assert [bytes(frame.payload) for frame in frames] == [payload(n + 1) for n in range(12)]


@pytest.mark.parametrize("survival", SURVIVALS)
@pytest.mark.parametrize("which", [0, 1, 5, 11, 12])
def test_cut_is_durable(which: int, survival: Survival) -> None:
    disk, log, starts = several()
    append(log, b"queued")
    position = [*starts, log.written_position][which]
    log.cut(position)
    assert log.end_position == log.written_position == log.durable_position == position
    log.close()
    log, frames = open_log(disk.restart(survival), durable_end=position)
    assert [frame.header.position for frame in frames] == starts[:which]
    # It goes on from there.
    assert append(log, b"other") == position
    log.write_pending()
    assert log.sync() == log.end_position


def test_segments_that_a_checkpoint_drops_during_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """On another thread; the cut removes whole segments, which takes a while."""
    disk, log, starts = several()
    unlink = disk.unlink

    def unlink_and_drop(path: str) -> None:
        unlink(path)
        monkeypatch.setattr(disk, "unlink", unlink)
        assert log.drop_below(starts[5]) == 1

    monkeypatch.setattr(disk, "unlink", unlink_and_drop)
    log.cut(starts[8])
    bases = log.segments.bases
    assert bases == segment_bases(disk, FOLDER)
    assert 0 < bases[0] <= starts[5]


def test_cut_inside_what_is_queued() -> None:
    disk, log, _ = several(3)
    append(log, b"kept")
    position = append(log, b"dropped")
    log.cut(position)
    log.close()
    _, frames = open_log(disk.restart("nothing"), durable_end=position)
    assert bytes(frames[-1].payload) == b"kept"


def test_what_another_node_had_synced_proves_nothing_here() -> None:
    """A follower's tail may be torn below what the leader says of its own disk."""
    for node, rots in ((0, True), (1, False)):
        disk = FakeDisk()
        log, _ = open_log(disk)
        for number in range(4):
            write(log, payload(number + 1))
            log.sync()
        log.close()
        disk.flip(f"{FOLDER}/{segment_name(0)}", (FRAME_HEADER_SIZE + 20) * 8)
        again = PhysicalLog(disk, FOLDER, segment_bytes_max=SMALL, node=node)
        if rots:
            with pytest.raises(CorruptionError):
                list(again.recover(0, 0))
        else:
            assert list(again.recover(0, 0)) == []


def test_a_full_disk_hides_no_frame_that_was_written(tmp_path: Path) -> None:
    """A leader that cannot write sends a follower that is behind what it has; and the rounds of all
    followers are sent together.
    """
    disk = SmallDisk(str(tmp_path), 1 << 20)
    log = PhysicalLog(disk, str(tmp_path / "log"))
    list(log.recover(0, 0))
    write(log, b"written")
    log.sync()
    end = log.written_position
    disk.take_all()
    queued = append(log, b"queued")
    assert log.read(0, 1 << 20)[FRAME_HEADER_SIZE:] == b"written"
    with pytest.raises(DiskFullError):
        log.read(queued, 1)
    disk.others = 0
    assert len(log.read(0, 1 << 20)) == log.end_position > end
    log.close()
