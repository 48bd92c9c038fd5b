"""Verify of a folder, run to its end."""

from __future__ import annotations

from pathlib import Path

from delaylog.broker.verify import Report, verify_folder
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.files.os_file_system import OsFileSystem
from tests.broker.verify.damaged_folder import flip


def verify(folder: Path, fs: FileSystem | None = None) -> Report:
    """What `delaylog verify` reports of a folder."""
    report = Report()
    for _ in verify_folder(fs or OsFileSystem(), str(folder), report):
        pass
    return report


def assert_flips_are_found(folder: Path, path: Path, every: int) -> None:
    """A flipped bit of a file is damage of that file, at the bit's byte or before it."""
    assert verify(folder).damage == []
    for bit in range(0, path.stat().st_size * 8, every):
        flip(path, bit)
        [found] = verify(folder).damage
        assert found.path == path.relative_to(folder).as_posix()
        assert found.position <= bit // 8
        flip(path, bit)
    assert verify(folder).damage == []
