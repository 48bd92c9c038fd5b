"""A file system whose writes fall back on a `SpaceReserve` when the disk is full.

It is used for everything that must still be written when the disk is full: the physical log, the
hours, checkpoints, ticks. Writes are positional, so a write that ran out of space half way is
simply repeated. Scratch files that the broker can do without (overflow of ready queues, copies of
hot seconds) use the plain file system and do not touch the reserve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delaylog.storage.errors import DiskFullError, NoDescriptorError
from delaylog.storage.files.file_system import File, FileSystem, Mapping
from delaylog.storage.files.space_reserve import SpaceReserve


class ReservedFile:
    """An open file whose writes may use the reserve."""

    def __init__(self, file: File, reserve: SpaceReserve) -> None:
        self._file = file
        self._reserve = reserve

    def pread(self, size: int, offset: int) -> bytes:
        return self._file.pread(size, offset)

    def pwritev(self, buffers: Sequence[Any], offset: int) -> int:
        try:
            return self._file.pwritev(buffers, offset)
        except DiskFullError:
            return self._reserve.making_room(lambda: self._file.pwritev(buffers, offset))

    def begin_writing(self, offset: int, size: int) -> None:
        self._file.begin_writing(offset, size)

    def punch(self, offset: int, size: int) -> None:
        self._file.punch(offset, size)

    def fdatasync(self) -> None:
        self._file.fdatasync()

    def truncate(self, size: int) -> None:
        try:
            self._file.truncate(size)
        except DiskFullError:
            self._reserve.making_room(lambda: self._file.truncate(size))

    def allocate(self, size: int) -> None:
        try:
            self._file.allocate(size)
        except DiskFullError:
            self._reserve.making_room(lambda: self._file.allocate(size))

    def size(self) -> int:
        return self._file.size()

    def map_read(self, offset: int, size: int) -> Mapping:
        return self._file.map_read(offset, size)

    def map_private(self, offset: int, size: int) -> Mapping:
        return self._file.map_private(offset, size)

    def close(self) -> None:
        self._file.close()


class ReservedFileSystem:
    """`fs`, with writes that may use the reserve."""

    def __init__(self, fs: FileSystem, reserve: SpaceReserve) -> None:
        self._fs = fs
        self._reserve = reserve

    def open(self, path: str, *, create: bool = False) -> ReservedFile:
        try:
            file = self._fs.open(path, create=create)
        except NoDescriptorError:
            raise
        except DiskFullError:
            file = self._reserve.making_room(lambda: self._fs.open(path, create=create))
        return ReservedFile(file, self._reserve)

    def exists(self, path: str) -> bool:
        return self._fs.exists(path)

    def listdir(self, path: str) -> list[str]:
        return self._fs.listdir(path)

    def mkdir(self, path: str) -> None:
        try:
            self._fs.mkdir(path)
        except DiskFullError:
            self._reserve.making_room(lambda: self._fs.mkdir(path))

    def rename(self, source: str, target: str) -> None:
        try:
            self._fs.rename(source, target)
        except DiskFullError:
            self._reserve.making_room(lambda: self._fs.rename(source, target))

    def unlink(self, path: str) -> None:
        self._fs.unlink(path)

    def remove_tree(self, path: str) -> None:
        self._fs.remove_tree(path)

    def sync_folder(self, path: str) -> None:
        self._fs.sync_folder(path)

    def free_bytes(self, path: str) -> int:
        return self._fs.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        return self._fs.total_bytes(path)
