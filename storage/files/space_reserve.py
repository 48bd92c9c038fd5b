"""A reserve of disk space: a preallocated file that is given up, in steps, when the disk is full.

Blocks that are ours already cannot be taken by another program. When a write finds no space, a
step of the file is cut off and the write is tried again, so that what was accepted is still split,
delivered and settled; once space is back the file grows again (`refill`). The file holds nothing:
its size is all there is to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.file_system import File, FileSystem, parent_of

SHARE_OF_DISK: Final = 8
"""At most one part in so many of a small file system is kept back."""
STEPS: Final = 64
"""Given up in so many steps: what a step frees may be lost to another program, not all of it."""
RESERVE: Final = "reserve"
"""Its name in a data folder."""
STEP_BYTES_MIN: Final = 64 << 10

Result = TypeVar("Result")


class SpaceReserve:
    """The reserve of one data folder. Any thread may call; one at a time gets through."""

    def __init__(self, fs: FileSystem, path: str, size_bytes: int) -> None:
        """Adopt the file as it is; `stand` makes it. `size_bytes` 0 turns the reserve off."""
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
        """Whether all of it stands."""
        return self.size_bytes >= self.target_bytes

    def give(self) -> bool:
        """Give up one step; False if nothing is left. The space is there when this returns."""
        with self._lock:
            file, size = self._file, max(self.size_bytes - self.step_bytes, 0)
            if file is None or self.size_bytes == 0:
                return False
            try:
                file.truncate(size)
                # A journal hands freed blocks out again when it has committed, not before.
                file.fdatasync()
            except DiskFullError:
                return False
            self.size_bytes = size
            self.given += 1
            return True

    def making_room(self, act: Callable[[], Result]) -> Result:
        """Do what found the disk full again and again, each time with a step less in reserve.

        Raises DiskFullError when the reserve is used up.
        """
        while True:
            if not self.give():
                return act()
            try:
                return act()
            except DiskFullError:
                continue

    def refill(self, free_bytes: int) -> bool:
        """Grow towards the target while `free_bytes` allow it; returns whether it is whole.

        Nothing happens before it has stood once. A step's worth stays free beside it, so that it
        does not take what the next write needs.
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
                # Somebody else was faster, or a quota counts otherwise: space is not back yet.
                pass
            return self.whole

    def stand(self, free_bytes: int) -> bool:
        """At a start: make what is there real and of the wanted size, then as `refill`.

        A copied folder may bring the file as a hole.
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
            # Space allocated before the disk was full is given back, so `size_bytes` is exact.
            self._open_file().truncate(self.size_bytes)
            raise

    def close(self) -> None:
        """Close the file; it keeps its space for the next start."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
