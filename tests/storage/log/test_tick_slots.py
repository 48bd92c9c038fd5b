"""Tick slots: written in turn, so that one whole slot always stands.

Method: cut and tear every write on the fake disk, damage each slot, and read what is left.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from delaylog.storage.errors import DiskFullError
from delaylog.storage.layout import TICK_SLOT_SIZE, TICK_SLOT_STRIDE
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.tick_slots import TickRecord, TickSlots
from tests.storage.fake_disk import SURVIVALS, DiskCrashed, FakeDisk, Survival
from tests.storage.small_disk import SmallDisk

PATH = "data/tick"


def record(number: int) -> TickRecord:
    return TickRecord(65_536, Tick(number, number + 1, number + 2), number * 10, -number)


def written(count: int) -> FakeDisk:
    disk = FakeDisk()
    disk.mkdir("data")
    slots = TickSlots(disk, PATH)
    disk.sync_all()
    for number in range(1, count + 1):
        slots.write(record(number))
        slots.sync()
    return disk


def newest(disk: FakeDisk) -> TickRecord | None:
    return TickSlots(disk, PATH).newest


def test_a_new_file_says_nothing() -> None:
    assert newest(written(0)) is None


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_slots_alternate(count: int) -> None:
    """The newest is read, goes on counting after a restart, and never over itself."""
    disk = written(count)
    assert newest(disk) == record(count)
    before = disk.content(PATH)
    TickSlots(disk, PATH).write(record(count + 1))
    after = disk.content(PATH)
    assert newest(disk) == record(count + 1)
    at = count % 2 * TICK_SLOT_STRIDE
    kept = slice(at, at + TICK_SLOT_SIZE)
    assert before[kept] == after[kept], "the newest slot is never the one written"


def test_a_damaged_slot_leaves_the_other() -> None:
    for bit in range(TICK_SLOT_SIZE * 8):
        disk = written(4)
        disk.flip(PATH, bit)
        assert newest(disk) == record(3)
        disk.flip(PATH, TICK_SLOT_STRIDE * 8 + bit)
        assert newest(disk) is None


def test_a_torn_write_leaves_the_other() -> None:
    for size in range(TICK_SLOT_SIZE):
        disk = written(4)
        raw = disk.content(PATH)
        TickSlots(disk, PATH).write(record(5))
        torn = disk.content(PATH)[TICK_SLOT_STRIDE : TICK_SLOT_STRIDE + size]
        at = TICK_SLOT_STRIDE + size
        disk.put(PATH, raw[:TICK_SLOT_STRIDE] + torn + raw[at:])
        assert newest(disk) in (record(4), record(5))


@pytest.mark.parametrize("survival", SURVIVALS)
def test_crash_at_every_operation(survival: Survival) -> None:
    for at in range(1, 9):
        for seed in range(4):
            disk = FakeDisk(seed)
            disk.mkdir("data")
            slots = TickSlots(disk, PATH)
            disk.sync_all()
            disk.crash_at = disk.count + at
            synced = number = 0
            with contextlib.suppress(DiskCrashed):
                for number in range(1, 9):
                    slots.write(record(number))
                    slots.sync()
                    synced = number
            assert disk.crashed
            found = newest(disk.restart(survival, seed))
            if found is None:
                assert synced == 0
            else:
                assert found in (record(synced), record(number))


def test_a_write_without_space_changes_nothing(tmp_path: Path) -> None:
    """The second slot takes space when it is first written. The record that was not stored does not
    count as the newest, and the slot of the newest one is not overwritten.
    """
    disk = SmallDisk(str(tmp_path), 1 << 20)
    slots = TickSlots(disk, str(tmp_path / "tick"))
    for number in range(1, 3):
        slots.write(record(number))
    slots.close()
    first = (tmp_path / "tick").read_bytes()[:TICK_SLOT_SIZE]
    (tmp_path / "tick").write_bytes(first)
    slots = TickSlots(disk, str(tmp_path / "tick"))
    before = slots.newest
    disk.take_all()
    for number in range(3, 5):
        with pytest.raises(DiskFullError):
            slots.write(record(number))
        assert slots.newest == before
    assert (tmp_path / "tick").read_bytes() == first
    disk.others = 0
    slots.write(record(5))
    assert TickSlots(disk, str(tmp_path / "tick")).newest == slots.newest == record(5)
