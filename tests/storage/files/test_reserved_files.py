"""Writes through the reserved door go on when the disk is full, and end when the reserve has."""

from __future__ import annotations

from pathlib import Path

import pytest

from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.space_reserve import ReservedFileSystem, SpaceReserve
from tests.storage.small_disk import SmallDisk

MIB = 1 << 20


def reserved(folder: Path) -> tuple[SmallDisk, SpaceReserve, ReservedFileSystem]:
    """A disk, its reserve, and the door to both."""
    disk = SmallDisk(str(folder), 64 * MIB)
    reserve = SpaceReserve(disk, f"{folder}/reserve", 4 * MIB)
    reserve.stand(64 * MIB)
    return disk, reserve, ReservedFileSystem(disk, reserve)


def test_writes_on_a_full_disk(tmp_path: Path) -> None:
    disk, reserve, fs = reserved(tmp_path)
    file = fs.open(f"{tmp_path}/file", create=True)
    disk.take_all()
    written = 0

    def write_on() -> None:
        nonlocal written
        while True:
            written += file.pwritev([bytes(100_000), b"x" * 100], written)

    with pytest.raises(DiskFullError):
        write_on()
    assert 3 * MIB < written <= 4 * MIB
    assert file.size() == written
    assert file.pread(100, written - 100) == b"x" * 100
    with pytest.raises(DiskFullError):
        file.allocate(written + MIB)
    disk.others = 0
    file.allocate(written + MIB)
    assert reserve.size_bytes == 0, "it comes back by `refill` only"
    assert (fs.total_bytes(""), fs.free_bytes("") > 0) == (64 * MIB, True)
    file.close()


@pytest.mark.parametrize("call", ["open", "mkdir", "rename", "truncate"])
def test_calls_that_need_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A folder's entry may need room as well: the call is made again after a step."""
    disk, reserve, fs = reserved(tmp_path)
    file = fs.open(f"{tmp_path}/a", create=True)
    target = file._file if call == "truncate" else disk
    real, tries = getattr(target, call), []

    def refused_twice(*args: object, **options: object) -> object:
        tries.append(args)
        if len(tries) <= 2:
            raise DiskFullError("no space")
        return real(*args, **options)

    monkeypatch.setattr(target, call, refused_twice)
    if call == "open":
        fs.open(f"{tmp_path}/b", create=True).close()
    elif call == "mkdir":
        fs.mkdir(f"{tmp_path}/b")
    elif call == "rename":
        fs.rename(f"{tmp_path}/a", f"{tmp_path}/b")
    else:
        file.truncate(8_192)
    assert len(tries) == 3
    assert reserve.given == 2
    assert fs.exists(f"{tmp_path}/b") or file.size() == 8_192
    file.close()
