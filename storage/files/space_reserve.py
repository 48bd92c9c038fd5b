"""A reserve of disk space: a preallocated file that is given up, in steps, when the disk is full.

No other program can take blocks that are allocated to this file. When a write finds no space, a
step of the file is cut off and the write is repeated, so that accepted messages are still split,
delivered and settled. Once there is space again the file grows back (`refill`). The content of the
file has no meaning, only its size.

`ReservedFileSystem` falls back on the reserve. It is used for everything that must still be written
when the disk is full: the physical log, the hours, checkpoints, ticks. Writes are positional, so a
write that ran out of space half way is simply repeated. Scratch files that the broker can do
without (overflow of ready queues, copies of hot seconds) use the plain file system and do not touch
the reserve.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from delaylog.storage.errors import DiskFullError, NoDescriptorError
from delaylog.storage.files.file_system import File, FileSystem, Mapping, parent_of

SHARE_OF_DISK: Final = 8
"""On a small file system the reserve takes at most an eighth of it."""
STEPS: Final = 64
"""The reserve is given up in this number of steps, since another program may take what a step
frees."""
RESERVE: Final = "reserve"
"""The name of the file in a data folder."""
STEP_BYTES_MIN: Final = 64 << 10

Result = TypeVar("Result")


class SpaceReserve:
    """The reserve of one data folder. Any thread may call it; a lock serialises the calls."""

    def __init__(self, fs: FileSystem, path: str, size_bytes: int) -> None:
        """Take over an existing file; `stand` creates it. `size_bytes` 0 turns the reserve off."""
        share = fs.total_bytes(parent_of(path)) // SHARE_OF_DISK
        self._fs = fs
        self._path = path
        self.target_bytes = min(size_bytes, share)
        self.step_bytes = max(self.target_bytes // STEPS, STEP_BYTES_MIN)
        self.given = 0
        """Steps given up so far."""
        self._lock = threading.Lock()
        self._file: File | None = fs.open(path) if fs.exists(path) else None
        self.size_bytes = self._file.size() if self._file is not None else 0

    @property
    def whole(self) -> bool:
        """Whether the file has its full size."""
        return self.size_bytes >= self.target_bytes

    def give(self) -> bool:
        """Give up one step; False if nothing is left. The space is there when this returns."""
        with self._lock:
            file, size = self._file, max(self.size_bytes - self.step_bytes, 0)
            if file is None or self.size_bytes == 0:
                return False
            try:
                file.truncate(size)
                # A journaling file system reuses freed blocks only after its journal commits.
                file.fdatasync()
            except DiskFullError:
                return False
            self.size_bytes = size
            self.given += 1
            return True

    def making_room(self, act: Callable[[], Result]) -> Result:
        """Do `act`; repeat it while it finds the disk full, giving up one step of the reserve each
        time.

        Raises DiskFullError when the reserve is used up.
        """
        while True:
            try:
                return act()
            except NoDescriptorError:
                raise
            except DiskFullError:
                if not self.give():
                    return act()

    def refill(self, free_bytes: int) -> bool:
        """Grow towards the target while `free_bytes` allow it; return whether it is complete.

        Does nothing before `stand` has created the file. It leaves the bytes of one step free, so
        that it does not take the space that the next write needs.
        """
        with self._lock:
            try:
                while (
                    self._file is not None and not self.whole and free_bytes >= 2 * self.step_bytes
                ):
                    size = min(self.size_bytes + self.step_bytes, self.target_bytes)
                    self._allocate(size)
                    free_bytes -= size - self.size_bytes
                    self.size_bytes = size
            except DiskFullError:
                # Another program was faster, or a quota applies: there is not enough space yet.
                pass
            return self.whole

    def regrow(self) -> None:
        """Refill the file as far as the disk has room."""
        if not self.whole:
            self.refill(self._fs.free_bytes(parent_of(self._path)))

    def stand(self, free_bytes: int) -> bool:
        """At a start: create the file, or cut it to the target and allocate it; then `refill`.

        In a copied folder the file may be a hole.
        """
        with self._lock:
            size = min(self.size_bytes, self.target_bytes)
            try:
                if self._file is None and self.target_bytes:
                    self._file = self._fs.open(self._path, create=True)
                if size < self.size_bytes:
                    self._open_file().truncate(size)
                self.size_bytes = 0
                if size:
                    self._allocate(size)
                self.size_bytes = size
            except DiskFullError:
                pass
        return self.refill(free_bytes)

    def _open_file(self) -> File:
        assert self._file is not None, "the reserve has a file while it has a size"
        return self._file

    def _allocate(self, size: int) -> None:
        try:
            self._open_file().allocate(size)
        except DiskFullError:
            # Free the blocks allocated before the disk was full, so that `size_bytes` is exact.
            self._open_file().truncate(self.size_bytes)
            raise

    def close(self) -> None:
        """Close the file; it keeps its space for the next start."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


# ------------------------------------------ a file system whose writes fall back on the reserve


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
        self._reserve.making_room(lambda: self._file.truncate(size))

    def allocate(self, size: int) -> None:
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
        file = self._reserve.making_room(lambda: self._fs.open(path, create=create))
        return ReservedFile(file, self._reserve)

    def exists(self, path: str) -> bool:
        return self._fs.exists(path)

    def listdir(self, path: str) -> list[str]:
        return self._fs.listdir(path)

    def mkdir(self, path: str) -> None:
        self._reserve.making_room(lambda: self._fs.mkdir(path))

    def rename(self, source: str, target: str) -> None:
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
