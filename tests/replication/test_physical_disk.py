"""The real log and slots behind replication: what a cut, a power cut and rot leave of them.

`test_schedules.py` runs clusters on them, beside the log of the simulator.
"""

from __future__ import annotations

import pytest

from delaylog.replication.epochs import NO_TICK, EpochTick
from delaylog.replication.physical_disk import PhysicalReplicaLog, SlotTicks
from delaylog.replication.replica import split_frames
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.physical_log import PhysicalLog
from delaylog.storage.log.tick_slots import TickRecord, TickSlots
from tests.storage.fake_disk import SURVIVALS, FakeDisk, Survival


class Folder:
    """One data folder, open."""

    def __init__(self, disk: FakeDisk) -> None:
        self.disk = disk
        disk.mkdir("data")
        disk.sync_folder("")
        self.slots = TickSlots(disk, "data/tick")
        self.physical = PhysicalLog(disk, "data/log", segment_bytes_max=700)
        self.log = PhysicalReplicaLog(self.physical, self.slots)
        newest = self.slots.newest
        for frame in self.physical.recover(0, newest.durable_end if newest else 0):
            self.log.note(frame)
        self.ticks = SlotTicks(self.slots, self.physical)

    def sync(self) -> None:
        self.physical.write_pending()
        self.physical.sync()
        newest = self.slots.newest or TickRecord(0, Tick(), 0, 0)
        self.slots.write(TickRecord(newest.epoch, newest.tick, self.log.durable_end, 0))

    def power_cut(self, survival: Survival, seed: int) -> Folder:
        return Folder(self.disk.restart(survival, seed))


def test_a_cut_takes_the_durable_end_with_it() -> None:
    """The slots prove what was synced; what was cut must not pass for lost."""
    folder = Folder(FakeDisk())
    folder.log.append_begin(EpochTick(1 << 16), 7)
    folder.log.append_begin(EpochTick(2 << 16), 7)
    folder.sync()
    folder.slots.sync()
    folder.log.cut(64)
    for survival in SURVIVALS:
        assert Folder(folder.disk).log.end == 64
        folder = folder.power_cut(survival, 1)
        assert folder.log.end == 64


def test_reads_from_before_a_cut_are_forgotten() -> None:
    """Other frames may stand in the same place afterwards."""
    folder = Folder(FakeDisk())
    begin(folder, 1)
    start = folder.log.end
    begin(folder, 2)
    before = bytes(folder.log.read(start, 1 << 20))
    folder.log.cut(start)
    begin(folder, 3)
    after = bytes(folder.log.read(start, 1 << 20))
    assert after != before
    assert [frame.epoch for frame in split_frames(after, start, 1 << 16)] == [3 << 16]


def begin(folder: Folder, counter: int) -> None:
    folder.log.append_begin(EpochTick(counter << 16), 0)


def test_dropped_segments_take_their_epochs_along() -> None:
    folder = Folder(FakeDisk())
    for counter in range(1, 40):
        folder.log.append_begin(EpochTick(counter << 16), 7)
        folder.sync()
    assert folder.physical.drop_below(folder.log.end) > 0
    first = folder.log.first_position
    folder.log.epochs.forget(first)
    assert folder.log.epochs.entries()[0][1] == first - 64
    assert folder.log.epochs.before(first) == (first // 64) << 16


def test_ticks_are_stored_in_the_slots() -> None:
    folder = Folder(FakeDisk())
    assert folder.ticks.tick == NO_TICK
    tick = EpochTick(3 << 16 | 1, 10, 20, 30, 40)
    folder.ticks.write(tick)
    folder.slots.sync()
    assert folder.power_cut("nothing", 0).ticks.tick == tick


def test_rot_is_not_shipped() -> None:
    """A frame of an earlier life that changed on the disk: the read raises an error."""
    folder = Folder(FakeDisk())
    folder.log.append_begin(EpochTick(epoch=1 << 16), 5)
    for at in range(3):
        folder.physical.append(
            FrameKind.SEND, [bytes([at]) * 50], epoch=1 << 16, leader_time_ms=5, tick=Tick()
        )
    folder.sync()
    end = folder.log.end
    whole = bytes(folder.log.read(0, end))
    disk = folder.disk
    name = f"data/log/{disk.listdir('data/log')[0]}"
    later = Folder(disk.restart("everything", 0))
    assert bytes(later.log.read(0, end)) == whole
    again = Folder(later.disk.restart("everything", 0))
    again.disk.flip(name, (end - 10) * 8)
    with pytest.raises(CorruptionError):
        again.log.read(0, end)


def test_frames_that_are_removed_during_a_read_are_no_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A checkpoint removes segments in another thread while a peer is sent old frames."""
    folder = Folder(FakeDisk())
    for counter in range(1, 40):
        begin(folder, counter)
        folder.sync()
    segments = folder.physical.segments
    opened = segments.open

    def open_late(base: int) -> File:
        folder.physical.drop_below(folder.log.end)
        return opened(base)

    monkeypatch.setattr(segments, "open", open_late)
    assert folder.log.read(0, 100) == b""
    assert folder.log.first_position > 0
    assert folder.log.read(0, 100) == b""
    monkeypatch.undo()
    assert len(folder.log.read(folder.log.first_position, 64)) == 64
    folder.disk.unlink(segments.path(folder.log.first_position))
    with pytest.raises(FileNotFoundError):
        folder.log.read(folder.log.first_position, 1)
