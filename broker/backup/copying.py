"""Copies of files: checksummed during the copy, with holes in place of zeros, durable at the end.

A copy is written in order and synced every few megabytes, so that a large backup beside a busy
broker never leaves the disk with gigabytes to write back at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from crc32c import crc32c

from delaylog.broker.backup.manifest import FileEntry
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import File, FileSystem

PART_BYTES: Final = 256 << 10
SYNC_BYTES: Final = 32 << 20
_ZEROS: Final = bytes(PART_BYTES)

Progress = Callable[[str, int], None]
"""Called with the name of the file being copied and the number of bytes just copied."""


class TargetFile(Protocol):
    """A file of a copy: written in order, never read back."""

    def pwritev(self, buffers: Sequence[Any], offset: int) -> int: ...

    def fdatasync(self) -> None: ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class Target(Protocol):
    """The target of a copy: a file system, or a node that writes the files sent to it."""

    def open(self, path: str, *, create: bool = False) -> TargetFile: ...

    def mkdir(self, path: str) -> None: ...

    def sync_folder(self, path: str) -> None: ...


Target_co = TypeVar("Target_co", bound=Target, covariant=True)


@dataclass(frozen=True, slots=True)
class Route(Generic[Target_co]):
    """The source and the target of the copy of a folder."""

    source: FileSystem
    folder: str
    target: Target_co
    dest: str

    def begin(self, path: str, progress: Progress) -> CopiedFile:
        """Create the copy of a file, still empty; `path` is relative to both folders."""
        return CopiedFile(self.target, self.dest, path, progress)


class CopiedFile:
    """A file being written at `folder`/`path`; the caller creates the folders."""

    def __init__(self, fs: Target, folder: str, path: str, progress: Progress) -> None:
        self._file = fs.open(f"{folder}/{path}", create=True)
        self._path = path
        self._progress = progress
        self._unsynced = 0
        self._size = 0
        self._crc = 0

    def append(self, part: bytes) -> None:
        """Append bytes."""
        self._crc = crc32c(part, self._crc)
        # State files are mostly holes; ranges of zeros stay holes in the copy.
        if part != _ZEROS[: len(part)]:
            self._file.pwritev([part], self._size)
            self._unsynced += len(part)
        self._size += len(part)
        if self._unsynced >= SYNC_BYTES:
            self._file.fdatasync()
            self._unsynced = 0
        self._progress(self._path, len(part))

    def copy(self, source: File, start: int, size: int) -> int:
        """Append a range of another file; return the range's crc32c."""
        at, end, crc = start, start + size, 0
        while at < end:
            part = source.pread(min(PART_BYTES, end - at), at)
            if not part:
                raise CorruptionError("bytes are missing", path=self._path, position=at)
            crc = crc32c(part, crc)
            self.append(part)
            at += len(part)
        return crc

    def finish(self, hole: int = 0) -> FileEntry:
        """Append a number of zero bytes as a hole, make the file durable, and return its entry."""
        self._file.truncate(self._size + hole)
        self._file.fdatasync()
        return FileEntry(self._path, self._size, self._crc, hole)

    def close(self) -> None:
        """Close the file, finished or not."""
        self._file.close()
