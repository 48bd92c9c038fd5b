"""The file system of the operating system, as storage reaches it."""

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
    File,
    Mapping,
    T,
    make_folder,
    raise_disk_error,
)
from delaylog.storage.files.spare_descriptors import NO_DESCRIPTOR, refill, with_spares


@cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    """The system's `fallocate`, which Python has no call for; one that does nothing elsewhere."""
    found = getattr(ctypes.CDLL(None), "fallocate64", None)
    if found is None:
        return lambda *_: -1
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return found  # type: ignore[no-any-return]


def _os_error() -> OSError:
    """What made the last call of `_LIBC` fail."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


class _OsMapping:
    """A range of a file, mapped without a descriptor of its own.

    Python's mmap keeps a duplicate of the descriptor for as long as the map lives. The kernel
    chooses the address, so that it can map large pieces of its page cache at once. The map ends
    with its last view, which a thread that looks at frames (`StallTrace`, debuggers) may hold.
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
    """A private mapping's bytes in memory of their own; the file's stay where they are."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    @property
    def buffer(self) -> Any:
        return self._memory

    def forget(self, start: int, size: int) -> None:
        """Nothing: the bytes are as good as the file's."""

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
    """Whether looking at a hole through a map takes a page of the disk, as tmpfs has it.

    There, looking into a mapped hole of a full disk is a SIGBUS. Unknown devices are no tmpfs.
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
                size = sum(memoryview(b).nbytes for b in part)
                written = os.pwritev(self._fd, part, offset + total)
                while written < size:
                    # Linux writes short when a signal or the 2 GiB bound cuts in, or when the
                    # disk fills half way: going on makes the last case an ENOSPC.
                    rest = b"".join(part)[written:]
                    written += os.pwrite(self._fd, rest, offset + total + written)
                total += size
        except OSError as error:
            raise_disk_error(error, self._path)
        return total

    def begin_writing(self, offset: int, size: int) -> None:
        # Of dirty pages the advice begins the writing and leaves them where they are. An error of
        # the disk is told by the fdatasync that follows.
        with suppress(OSError):
            os.posix_fadvise(self._fd, offset, size, os.POSIX_FADV_DONTNEED)

    def punch(self, offset: int, size: int) -> None:
        # Space is all that it is for: a file system that cannot do it keeps the blocks.
        _fallocate()(self._fd, _PUNCH_HOLE | _KEEP_SIZE, offset, size)

    def fdatasync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            # A failed fsync drops the dirty pages and a retry says ok: never survivable.
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
    """As `os.open`, if need be with a spare descriptor. Call `refill` once it is closed."""
    return with_spares(partial(os.open, path, flags | os.O_CLOEXEC, FILE_MODE))


def _briefly(act: Callable[[str], T], path: str) -> T:
    """Do what opens files and closes them again. Raises NoDescriptorError, and OSError as it is."""
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
    """The real file system for those who only look: files of others, folders mounted read-only."""

    _access = os.O_RDONLY
