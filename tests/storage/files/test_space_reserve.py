"""The reserve of disk space: how large it is, how it goes step by step, and how it comes back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from delaylog.storage.errors import DiskFullError, NoDescriptorError
from delaylog.storage.files.space_reserve import SHARE_OF_DISK, SpaceReserve
from tests.storage.small_disk import SmallDisk

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> SmallDisk:
    return SmallDisk(str(tmp_path), 64 * MIB)


def reserve_on(disk: SmallDisk, size: int = 4 * MIB) -> SpaceReserve:
    return SpaceReserve(disk, f"{disk.folder}/reserve", size)


def size_on(disk: SmallDisk) -> int:
    return os.stat(f"{disk.folder}/reserve").st_size


def test_it_owns_real_blocks(disk: SmallDisk) -> None:
    reserve = reserve_on(disk)
    assert not reserve.whole
    assert not reserve.refill(64 * MIB), "it does not appear before it has stood"
    assert reserve.stand(64 * MIB)
    stat = os.stat(f"{disk.folder}/reserve")
    assert stat.st_size == 4 * MIB
    assert stat.st_blocks * 512 >= 4 * MIB


def test_a_small_file_system_keeps_a_share(disk: SmallDisk) -> None:
    assert reserve_on(disk, 1 << 40).target_bytes == 64 * MIB // SHARE_OF_DISK


def test_no_reserve(disk: SmallDisk) -> None:
    reserve = reserve_on(disk, 0)
    assert reserve.stand(64 * MIB)
    assert reserve.whole
    assert not reserve.give()
    assert not os.path.exists(f"{disk.folder}/reserve")


def test_it_goes_in_steps_and_comes_back_in_steps(disk: SmallDisk) -> None:
    reserve = reserve_on(disk)
    reserve.stand(64 * MIB)
    sizes = []
    while reserve.give():
        assert size_on(disk) == reserve.size_bytes
        sizes.append(reserve.size_bytes)
    assert sizes == list(range(4 * MIB - reserve.step_bytes, -1, -reserve.step_bytes))
    assert reserve.given == len(sizes)
    assert not reserve.refill(2 * reserve.step_bytes - 1), "the next write needs that much"
    assert reserve.size_bytes == 0
    assert not reserve.refill(3 * reserve.step_bytes)
    assert reserve.size_bytes == 2 * reserve.step_bytes
    assert reserve.refill(64 * MIB)
    assert size_on(disk) == reserve.size_bytes == 4 * MIB


def test_what_found_no_room_is_done_with_the_reserve(disk: SmallDisk) -> None:
    """As many steps go as it takes, and no more; when nothing is left the error is told."""
    reserve = reserve_on(disk)
    reserve.stand(64 * MIB)
    file = disk.open(f"{disk.folder}/file", create=True)
    disk.take_all()
    need = 5 * reserve.step_bytes // 2
    assert reserve.making_room(lambda: file.pwritev([bytes(need)], 0)) == need
    assert reserve.size_bytes == 4 * MIB - 3 * reserve.step_bytes
    with pytest.raises(DiskFullError):
        reserve.making_room(lambda: file.pwritev([bytes(5 * MIB)], 0))
    assert reserve.size_bytes == 0
    file.close()


def test_a_call_that_finds_no_descriptor_takes_no_space(disk: SmallDisk) -> None:
    """Space would not help it."""
    reserve = reserve_on(disk)
    reserve.stand(64 * MIB)

    def fail() -> NoReturn:
        raise NoDescriptorError("no descriptor is free")

    with pytest.raises(NoDescriptorError):
        reserve.making_room(fail)
    assert reserve.whole


def test_a_refill_that_somebody_else_outruns(disk: SmallDisk) -> None:
    """The free bytes that it was told of are gone: no error, and its size stays true."""
    reserve = reserve_on(disk)
    reserve.stand(64 * MIB)
    reserve.give()
    disk.take_all()
    assert not reserve.refill(64 * MIB)
    assert size_on(disk) == reserve.size_bytes == 4 * MIB - reserve.step_bytes


@pytest.mark.parametrize("wanted", [MIB, 4 * MIB, 6 * MIB])
def test_the_next_start_adopts_it(disk: SmallDisk, wanted: int) -> None:
    """It can be given up before it has stood again, and follows a changed limit."""
    reserve = reserve_on(disk)
    reserve.stand(64 * MIB)
    reserve.close()
    again = reserve_on(disk, wanted)
    assert again.give()
    assert again.stand(64 * MIB)
    assert size_on(disk) == again.size_bytes == wanted


def test_a_copied_hole_becomes_real(disk: SmallDisk) -> None:
    with open(f"{disk.folder}/reserve", "wb") as file:
        file.truncate(4 * MIB)
    assert reserve_on(disk).stand(64 * MIB)
    assert os.stat(f"{disk.folder}/reserve").st_blocks * 512 >= 4 * MIB


def test_a_start_without_room(disk: SmallDisk) -> None:
    disk.take_all()
    reserve = reserve_on(disk)
    assert not reserve.stand(0)
    assert not reserve.whole
    disk.others = 0
    assert reserve.refill(64 * MIB)
