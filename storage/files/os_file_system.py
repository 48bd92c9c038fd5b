"""The file system protocol on top of the operating system's files.

`UnsyncedFileSystem` never calls fsync. It is for folders that need not survive a crash of the
machine: a test that moves the clock by thirty days writes the files of hundreds of hours, and would
wait for the disk at each of them. Written bytes are in the operating system's cache, so they
survive any end of the program.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from delaylog.storage.errors import DiskFailedError
from delaylog.storage.files.file_system import (
    _KEEP_SIZE,
    _LIBC,
    _MAP_FAILED,
    _PUNCH_HOLE,
    FILE_MODE,
    IOV_MAX,
    NO_DESCRIPTOR,
    File,
    Mapping,
    T,
    make_folder,
    raise_disk_error,
    refill,
    with_spares,
)


@cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    """The C library's `fallocate`, which Python does not have; a no-op where it is missing."""
    found = getattr(ctypes.CDLL(None), "fallocate64", None)
    if found is None:
        return lambda *_: -1
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return found  # type: ignore[no-any-return]


def _os_error() -> OSError:
    """The error of the last failed call of `_LIBC`."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


class _OsMapping:
    """A mapped range of a file that keeps no descriptor.

    Python's mmap keeps a duplicate of the descriptor as long as the map exists. The kernel chooses
    the address, so that it can map large pieces of its page cache at once. The range is unmapped
    with its last view, which a thread that inspects stack frames (`StallTrace`, debuggers) may
    keep alive.
    """

    def __init__(self, fd: int, offset: int, size: int, *, private: bool) -> None:
        if os.fstat(fd).st_size < offset + size:
            raise ValueError("a map may not reach behind the end of its file")
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if private else 0)
        flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
        address = _LIBC.mmap(None, size, prot, flags, fd, offset)
        if address == _MAP_FAILED:
            raise _os_error()
        memory = (ctypes.c_char * size).from_address(address)
        weakref.finalize(memory, _LIBC.munmap, address, size).atexit = False
        view = memoryview(memory).cast("B")
        self._address = address
        self._view = view if private else view.toreadonly()

    @property
    def buffer(self) -> Any:
        return self._view

    def forget(self, start: int, size: int) -> None:
        if _LIBC.madvise(self._address + start, size, mmap.MADV_DONTNEED):
            raise _os_error()

    def close(self) -> None:
        self._view, self._address = memoryview(b""), 0


class _CopyMapping:
    """A private mapping as a copy of the file's bytes in anonymous memory."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    @property
    def buffer(self) -> Any:
        return self._memory

    def forget(self, start: int, size: int) -> None:
        """Do nothing: the bytes exist only in memory."""

    def close(self) -> None:
        with suppress(BufferError):
            self._memory.close()


def _copy_of(fd: int, offset: int, size: int) -> _CopyMapping:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    at, end = offset, min(offset + size, os.fstat(fd).st_size)
    while at < end:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            raise
        at = min(os.lseek(fd, start, os.SEEK_HOLE), end)
        if start < at:
            memory[start - offset : at - offset] = os.pread(fd, at - start, start)
    return _CopyMapping(memory)


@cache
def _holes_take_space(device: int) -> bool:
    """Whether reading a hole through a map allocates a block of the file system, as on tmpfs.

    If that file system is full, reading a mapped hole raises SIGBUS. A device that is not listed
    is taken not to be a tmpfs.
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    for line in mounts.splitlines():
        place, _, kind = line.partition(" - ")
        if place.split()[2] == number:
            return kind.split()[0] == "tmpfs"
    return False


class OsFile:
    """A file of the operating system."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    def pread(self, size: int, offset: int) -> bytes:
        try:
            data = os.pread(self._fd, size, offset)
            while len(data) < size:
                more = os.pread(self._fd, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
            return data
        except OSError as error:
            raise_disk_error(error, self._path)

    def pwritev(self, buffers: Sequence[Any], offset: int) -> int:
        total = 0
        try:
            for start in range(0, len(buffers), IOV_MAX):
                part = buffers[start : start + IOV_MAX]
                size = 0
                for buffer in part:
                    size += memoryview(buffer).nbytes
                written = os.pwritev(self._fd, part, offset + total)
                while written < size:
                    # Linux writes less than asked for after a signal, beyond 2 GiB, or when the
                    # disk fills half way: writing the rest turns the last case into ENOSPC.
                    rest = b"".join(part)[written:]
                    written += os.pwrite(self._fd, rest, offset + total + written)
                total += size
        except OSError as error:
            raise_disk_error(error, self._path)
        return total

    def begin_writing(self, offset: int, size: int) -> None:
        # For dirty pages, this advice starts the write-back and keeps the pages. The fdatasync that
        # follows reports an error of the disk.
        with suppress(OSError):
            os.posix_fadvise(self._fd, offset, size, os.POSIX_FADV_DONTNEED)

    def punch(self, offset: int, size: int) -> None:
        # It only saves space: a file system that does not support it keeps the blocks.
        _fallocate()(self._fd, _PUNCH_HOLE | _KEEP_SIZE, offset, size)

    def fdatasync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            # A failed fsync drops the dirty pages and a retry succeeds: the node must stop.
            raise DiskFailedError(f"fdatasync failed on {self._path}: {error.strerror}") from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise_disk_error(error, self._path)

    def allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError as error:
            raise_disk_error(error, self._path)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def map_read(self, offset: int, size: int) -> Mapping:
        return _OsMapping(self._fd, offset, size, private=False)

    def map_private(self, offset: int, size: int) -> Mapping:
        if _holes_take_space(os.fstat(self._fd).st_dev):
            return _copy_of(self._fd, offset, size)
        return _OsMapping(self._fd, offset, size, private=True)

    def close(self) -> None:
        os.close(self._fd)
        refill()


def open_descriptor(path: str, flags: int) -> int:
    """`os.open`, if necessary with a spare descriptor. Call `refill` after closing it."""
    return with_spares(partial(os.open, path, flags | os.O_CLOEXEC, FILE_MODE))


def _briefly(act: Callable[[str], T], path: str) -> T:
    """Call `act`, which opens files and closes them again, if necessary with a spare descriptor.

    Raises NoDescriptorError; any other OSError is passed on.
    """
    try:
        return with_spares(partial(act, path))
    except OSError as error:
        if error.errno in NO_DESCRIPTOR:
            raise_disk_error(error, path)
        raise
    finally:
        refill()


class OsFileSystem:
    """The real file system."""

    _access = os.O_RDWR
    _file = OsFile

    def open(self, path: str, *, create: bool = False) -> File:
        flags = self._access | (os.O_CREAT if create else 0)
        try:
            return self._file(open_descriptor(path, flags), path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise_disk_error(error, path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(_briefly(os.listdir, path))

    def mkdir(self, path: str) -> None:
        try:
            make_folder(path)
        except OSError as error:
            raise_disk_error(error, path)

    def rename(self, source: str, target: str) -> None:
        try:
            os.rename(source, target)
        except OSError as error:
            raise_disk_error(error, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        _briefly(shutil.rmtree, path)

    def sync_folder(self, path: str) -> None:
        try:
            fd = open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise_disk_error(error, path)
        try:
            os.fsync(fd)
        except OSError as error:
            raise DiskFailedError(f"fsync failed on folder {path}: {error.strerror}") from error
        finally:
            os.close(fd)
            refill()

    def free_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize


class ReadOnlyFileSystem(OsFileSystem):
    """The real file system, opened read-only: for other users' files and read-only mounts."""

    _access = os.O_RDONLY


# -------------------------------------------------------------------------------- without fsync


class UnsyncedFile(OsFile):
    """An open file that the operating system writes to the disk at any time."""

    def fdatasync(self) -> None:
        """Do nothing."""


class UnsyncedFileSystem(OsFileSystem):
    """The real file system without its fsyncs."""

    _file = UnsyncedFile

    def sync_folder(self, path: str) -> None:
        """Do nothing."""
