"""The file system protocol: storage accesses the disk only through it.

`OsFileSystem` implements the protocols `FileSystem` and `File`. Tests pass other implementations,
which tear the last write, fill the disk, lose what was not fsynced, or crash at a chosen call.
Writes are positional (`pwrite`): a file has no cursor, so a retry can never append twice.

Spare descriptors are reserved for the broker's own files. When a file cannot be opened because no
descriptor is free, a spare one is released for it, so neither connections nor other parts of the
program can keep the broker from opening its log and hours.

Small files are read and written whole. A replacement is durable before it is renamed, so a crash
leaves either the old file or the new one. The rename itself is durable once the caller has synced
the folder.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any, Final, NoReturn, Protocol, TypeVar

from delaylog.storage.errors import DiskFailedError, DiskFullError, NoDescriptorError

# ---------------------------------------------------------------------------- spare descriptors

SPARES: Final = 16
"""Reserved descriptors: more than the broker ever opens before it closes a file again."""
NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""Errors of a process, or a machine, that has no descriptor left."""

T = TypeVar("T")

_spares: list[int] = []
_wanted = 0


def hold_spares(count: int = SPARES) -> None:
    """Reserve `count` descriptors from now on."""
    global _wanted  # noqa: PLW0603 (descriptors belong to the process)
    _wanted = count
    refill()


def give_spare() -> bool:
    """Release one descriptor; False if none is reserved."""
    try:
        os.close(_spares.pop())
    except IndexError:
        return False
    return True


def with_spares(act: Callable[[], T]) -> T:
    """Call `act`; whenever no descriptor is free, release a spare one and call it again.

    `act` must be safe to repeat.
    """
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR or not give_spare():
                raise


def refill() -> None:
    """Reserve descriptors again, after a file was closed."""
    if len(_spares) < _wanted:
        with suppress(OSError):
            _spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            if len(_spares) < _wanted:
                refill()


# --------------------------------------------------------------------------------- the protocol

IOV_MAX = 1024
"""Most buffers of one writev on Linux."""
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
"""Only the broker's own user may read messages and keys."""


class Mapping(Protocol):
    """A mapped range of a file."""

    @property
    def buffer(self) -> Any:
        """An object with the buffer protocol (writable only for private mappings)."""

    def forget(self, start: int, size: int) -> None:
        """Release the pages of a page-aligned range; a later access reads the file again."""

    def close(self) -> None:
        """Unmap. No view of the buffer may be alive."""


class File(Protocol):
    """An open file."""

    def pread(self, size: int, offset: int) -> bytes: ...

    def pwritev(self, buffers: Sequence[Any], offset: int) -> int:
        """Write all buffers one after another at `offset`; return their total size."""

    def begin_writing(self, offset: int, size: int) -> None:
        """Ask the system to begin writing a range to the disk; a hint without a guarantee."""

    def fdatasync(self) -> None: ...

    def punch(self, offset: int, size: int) -> None:
        """Free the blocks of a range, which then reads as zeros.

        Does nothing on a file system that does not support it.
        """

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Allocate the blocks of the first `size` bytes, and extend a shorter file to this size.

        The bytes of the file do not change.
        """

    def size(self) -> int: ...

    def map_read(self, offset: int, size: int) -> Mapping: ...

    def map_private(self, offset: int, size: int) -> Mapping:
        """A copy-on-write mapping: stores stay in memory until they are written with pwritev.

        The mapping must not reach behind the end of the file (holes are fine).
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
        """Size of the file system that `path` is on."""


def parent_of(path: str) -> str:
    """The folder that contains the last name of a path."""
    return os.path.dirname(path.rstrip("/")) or "."


def make_folder(path: str) -> None:
    """Create a folder and its missing parents, all private; an existing folder stays as it is."""
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileNotFoundError:
        if os.path.isdir(parent_of(path)):
            # The parent exists but takes no folders, as in /proc.
            raise
        make_folder(parent_of(path))
        make_folder(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def raise_disk_error(error: OSError, path: str) -> NoReturn:
    """Translate an OSError.

    A full disk and a lack of descriptors are survivable; all other errors stop the node.
    """
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


# -------------------------------------------------- small files that are read and written whole


def read_file(fs: FileSystem, path: str) -> bytes:
    """All bytes of a file."""
    with closing(fs.open(path)) as file:
        return file.pread(file.size(), 0)


def size_of(fs: FileSystem, path: str) -> int:
    """The size of a file in bytes."""
    with closing(fs.open(path)) as file:
        return file.size()


def write_file(fs: FileSystem, path: str, parts: Sequence[Any]) -> None:
    """Create a file with these bytes, durably; it must not exist."""
    with closing(fs.open(path, create=True)) as file:
        file.pwritev(parts, 0)
        file.fdatasync()


def replace_file(fs: FileSystem, path: str, parts: Sequence[Any]) -> None:
    """Write a temporary file, durably, and rename it to `path`."""
    aside = f"{path}.tmp"
    if fs.exists(aside):
        fs.unlink(aside)
    write_file(fs, aside, parts)
    fs.rename(aside, path)
