"""The one door through which storage reaches disk.

`FileSystem` and `File` are protocols; `OsFileSystem` is the real one. Tests hand in others that
tear the last write, fill the disk, forget what was not fsynced or crash at a chosen call. Writes
are positional (`pwrite`): a file has no cursor, so a retry can never append twice.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from typing import Any, Final, NoReturn, Protocol, TypeVar

from delaylog.storage.errors import DiskFailedError, DiskFullError, NoDescriptorError
from delaylog.storage.files.spare_descriptors import NO_DESCRIPTOR

T = TypeVar("T")

IOV_MAX = 1024
"""How many buffers one writev takes on Linux."""
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
"""Messages and keys are readable by the broker's own user only."""


class Mapping(Protocol):
    """A mapped range of a file."""

    @property
    def buffer(self) -> Any:
        """An object with the buffer protocol (writable only for private mappings)."""

    def forget(self, start: int, size: int) -> None:
        """Give back the pages of a page-aligned range; a later touch reads the file again."""

    def close(self) -> None:
        """Unmap. No view of the buffer may be alive."""


class File(Protocol):
    """An open file."""

    def pread(self, size: int, offset: int) -> bytes: ...

    def pwritev(self, buffers: Sequence[Any], offset: int) -> int:
        """Write all buffers one after another at `offset`; returns the bytes written (all)."""

    def begin_writing(self, offset: int, size: int) -> None:
        """Let the system begin to bring a written range to the disk; nothing is promised."""

    def fdatasync(self) -> None: ...

    def punch(self, offset: int, size: int) -> None:
        """Give back the blocks of a range, which reads as zeros then; nothing where that cannot be
        done.
        """

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Own the blocks of the first `size` bytes and be at least that long; bytes stay."""

    def size(self) -> int: ...

    def map_read(self, offset: int, size: int) -> Mapping: ...

    def map_private(self, offset: int, size: int) -> Mapping:
        """A copy-on-write mapping: stores stay in memory until they are written with pwritev.

        The file must already be as long as the mapping reaches (holes are fine).
        """

    def close(self) -> None: ...


class FileSystem(Protocol):
    """The folder operations storage needs."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]: ...

    def mkdir(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_folder(self, path: str) -> None:
        """Make creations, renames and removals inside a folder durable."""

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int:
        """Size of the file system that holds `path`."""


def parent_of(path: str) -> str:
    """The folder that a path's last name stands in."""
    return os.path.dirname(path.rstrip("/")) or "."


def make_folder(path: str) -> None:
    """Create a folder and its missing parents, all of them private; one that exists is kept."""
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileNotFoundError:
        if os.path.isdir(parent_of(path)):
            # Such as /proc, where nobody makes folders.
            raise
        make_folder(parent_of(path))
        make_folder(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def raise_disk_error(error: OSError, path: str) -> NoReturn:
    """Translate an OSError: full disks are survivable, everything else stops the node."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        raise DiskFullError(f"no space for {path}: {error.strerror}") from error
    if error.errno in NO_DESCRIPTOR:
        raise NoDescriptorError(
            f"no file descriptor for {path}: {error.strerror}; raise the limit (ulimit -n)"
        ) from error
    raise DiskFailedError(f"I/O failed on {path}: {error.strerror}") from error


_KEEP_SIZE = 0x01
_PUNCH_HOLE = 0x02


_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_longlong,
)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_MAP_FAILED: Final = ctypes.c_void_p(-1).value
