"""The real file system with a bound on what a folder's files take, and another program on it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.file_system import File
from delaylog.storage.files.os_file_system import OsFile, OsFileSystem


class SmallFile(OsFile):
    """Grows only while the disk has room for it."""

    def __init__(self, fd: int, path: str, disk: SmallDisk) -> None:
        super().__init__(fd, path)
        self._disk = disk

    def _grow(self, end: int) -> None:
        more = end - self.size()
        if more > self._disk.free_bytes(""):
            raise DiskFullError(f"no space for {self._path}")

    def pwritev(self, buffers: Sequence[Any], offset: int) -> int:
        self._grow(offset + sum(memoryview(buffer).nbytes for buffer in buffers))
        return super().pwritev(buffers, offset)

    def allocate(self, size: int) -> None:
        self._grow(size)
        super().allocate(size)


class SmallDisk(OsFileSystem):
    """`others` is what another program has taken."""

    def __init__(self, folder: str, total: int) -> None:
        self.folder = folder
        self.total = total
        self.others = 0

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return SmallFile(os.open(path, flags, 0o644), path, self)

    def free_bytes(self, path: str) -> int:
        used = 0
        for place, _, names in os.walk(self.folder):
            for name in names:
                # Other threads rename and remove files meanwhile.
                with suppress(FileNotFoundError):
                    found = os.stat(os.path.join(place, name))
                    # The holes of a sparse file take no space.
                    used += min(found.st_size, found.st_blocks * 512)
        return max(self.total - self.others - used, 0)

    def total_bytes(self, path: str) -> int:
        return self.total

    def take_all(self) -> None:
        """The other program takes the last byte."""
        self.others += self.free_bytes("")
